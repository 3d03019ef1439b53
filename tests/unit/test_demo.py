"""The demo, where its server doesn't come up at once."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from rbln_vllm_backend import cli, demo
from rbln_vllm_backend.embedded_server import EmbeddedServerError, StubLostError


def test_a_server_that_listens_already_is_not_taken_for_the_demos_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(demo, "_HTTP", port)
        with pytest.raises(EmbeddedServerError) as caught:
            demo.run(str(tmp_path))
    assert str(caught.value) == f"Port {port} can't be used: Address already in use."


class ScriptedServer:
    """Implements what the demo uses of ``ServerProcess``; each start takes what it comes to from ``ends``."""

    ends: list[BaseException | None]
    done: list[str]

    def __init__(self, model_repository: str, *, log_path: Path, **ports: int) -> None:
        self._log = log_path

    def start(self) -> None:
        self.done.append("start")
        with self._log.open("a") as log:
            log.write("a line of the server\n")

    def wait_ready(self, deadline_s: float) -> None:
        if end := self.ends.pop(0):
            raise end

    def kill(self) -> None:
        self.done.append("kill")

    def wait(self) -> int:
        return 137

    def stop(self) -> int:
        self.done.append("stop")
        return 0


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    outcome = demo.Outcome(2, 0.1, 0.2, 4, 3, 0.75, 4.0)
    monkeypatch.setattr(demo, "ServerProcess", ScriptedServer)
    monkeypatch.setattr(demo, "stream_one", lambda *_: outcome)
    monkeypatch.setattr(demo.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    ScriptedServer.done = []
    return ScriptedServer


def test_a_server_that_triton_has_hung_is_started_again(scripted: Any) -> None:
    scripted.ends = [StubLostError("lost"), StubLostError("lost"), None]
    assert demo.run("models") == 0
    assert scripted.done == ["start", "kill", "start", "kill", "start", "stop"]


def test_after_three_starts_the_demo_fails_and_keeps_the_log(
    scripted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.ends = [StubLostError("lost")] * 3
    with pytest.raises(StubLostError):
        demo.run("models")
    assert (tmp_path / "tritonserver.log").read_text() == "a line of the server\n" * 3
    assert capsys.readouterr().out.endswith("a line of the server\n" * 3 + "\n")


def test_a_server_that_ends_is_not_started_again(scripted: Any) -> None:
    scripted.ends = [EmbeddedServerError("tritonserver ended with status 1")]
    with pytest.raises(EmbeddedServerError):
        demo.run("models")
    assert scripted.done == ["start", "stop"]


def test_ctrl_c_stops_the_server_without_a_traceback(scripted: Any) -> None:
    scripted.ends = [KeyboardInterrupt()]
    assert cli.main(["demo"]) == 130
    assert scripted.done == ["start", "stop"]
