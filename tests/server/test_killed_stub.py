"""A killed stub can't be replaced within its server, so the server ends, for whoever looks after it to start anew."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path

import psutil

from model_repository import write_ticking_model
from running_server import free_ports
from waiting import until

from .processes import gone

ENDED_S = 60.0


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_serve_ends_with_a_status_when_a_stub_was_killed(tmp_path: Path) -> None:
    write_ticking_model(tmp_path / "models", "llm")
    http_port, grpc_port, metrics_port = free_ports(3)
    command = [sys.executable, "-m", "rbln_vllm_backend.cli", "serve", f"--model-repository={tmp_path / 'models'}"]
    command += [f"--http-port={http_port}", f"--grpc-port={grpc_port}", f"--metrics-port={metrics_port}"]
    with open(tmp_path / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(lambda: is_ready(http_port), 120)
            everything = psutil.Process(process.pid).children(recursive=True)
            (stub,) = (one for one in everything if "triton_python_backend_stub" in one.name())
            stub.kill()
            killed_at = time.monotonic()
            assert process.wait(ENDED_S) == 1
            print(f"ended after {time.monotonic() - killed_at:.1f} s")
            assert gone(everything)
        finally:
            process.terminate()
    words = "tritonserver has lost a model's process: it was killed, or taken for dead while it loaded"
    assert words in (tmp_path / "log").read_text()
