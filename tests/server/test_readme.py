"""The README's calls, run as they stand but for the ports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from running_server import RunningServer

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(bash|python)\n(.*?)```", README, re.S)
CALLS = [text for kind, text in BLOCKS if kind == "python" or text.startswith("curl")]


@pytest.mark.parametrize("text", CALLS, ids=["curl", "tritonclient"])
def test_the_readmes_calls_are_answered(server: RunningServer, text: str) -> None:
    text = text.replace("localhost:8000", server.http).replace("localhost:8001", server.grpc)
    command = ["bash", "-euc", text] if text.startswith("curl") else [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, timeout=120)
    output = done.stdout.decode(errors="replace")
    assert done.returncode == 0, done.stderr
    assert "error" not in output
    if text.startswith("curl"):
        assert '"text_output":"The capital of France is' in output
        assert output.count("data: ") > 1
    assert len(output) > 10
