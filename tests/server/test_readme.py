"""The documents' calls, run as they stand but for the ports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from running_server import RunningServer

ROOT = Path(__file__).parents[2]


def calls(document: str) -> list[str]:
    """The document's blocks of Python, and of bash that begin with curl."""
    blocks = re.findall(r"```(bash|python)\n(.*?)```", (ROOT / document).read_text(), re.S)
    return [text for kind, text in blocks if kind == "python" or text.startswith("curl")]


def run(server: RunningServer, text: str) -> str:
    """What a call prints; it must succeed."""
    text = text.replace("localhost:8000", server.http).replace("localhost:8001", server.grpc)
    command = ["bash", "-euc", text] if text.startswith("curl") else [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    output = done.stdout.decode(errors="replace")
    assert "error" not in output
    return output


@pytest.mark.parametrize("text", calls("README.md"), ids=["curl", "stream", "infer"])
def test_the_readmes_calls_are_answered(server: RunningServer, text: str) -> None:
    output = run(server, text)
    if text.startswith("curl"):
        assert '"text_output":"The capital of France is' in output
        assert output.count("data: ") > 1
    assert len(output) > 10


@pytest.mark.parametrize("text", calls("docs/client-protocol.md"), ids=["curl", "infer"])
def test_the_protocols_calls_are_answered(server: RunningServer, text: str) -> None:
    output = run(server, text)
    if not text.startswith("curl"):
        assert output.startswith("The capital of France is")
        assert output.splitlines()[-1] == "400 max_tokens = 0: must be an integer from 1 to 2147483647."
        return
    assert output.count('"text_output":"') == text.count("curl")
    assert '"finish_reason":"' in output
    assert re.search('"text_output":"(yes|no)"', output)
