"""`rbln-vllm-backend serve` as a terminal runs it: the first of a process group of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from running_server import READY_DEADLINE_S, free_ports
from waiting import until


@dataclass(frozen=True)
class Serving:
    """Where it listens (host:port), and the command's process."""

    grpc: str
    process: subprocess.Popen[bytes]

    def descendants(self) -> list[psutil.Process]:
        """tritonserver, its stub, and the engine's processes."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def interrupt(self) -> None:
        """What Ctrl-C does: the signal goes to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)


@contextlib.contextmanager
def serving(repository: Path, log: Path, ready_deadline_s: float = READY_DEADLINE_S) -> Iterator[Serving]:
    """Runs the command on the repository, waits until the server is ready, and ends what is left of it."""
    http_port, grpc_port, metrics_port = free_ports(3)
    command = [sys.executable, "-m", "rbln_vllm_backend.cli", "serve", f"--model-repository={repository}"]
    command += [f"--http-port={http_port}", f"--grpc-port={grpc_port}", f"--metrics-port={metrics_port}"]
    with (
        open(log, "wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True) as process,
    ):
        try:
            until(lambda: _is_ready(http_port), ready_deadline_s)
            yield Serving(f"localhost:{grpc_port}", process)
        finally:
            process.terminate()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
