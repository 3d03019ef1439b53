"""A model that the server has dropped gives its engine back; one that is only being reloaded keeps it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_repository import write_model
from running_server import RunningServer, running

from .client import ask, post

TICKING = Path(__file__).parent / "ticking" / "model.py"
OPTIONS = {"model": "an/engine-without-one", "serving.warmup": "false"}
SHORT = {"max_tokens": 5}
DROPPED = "The server has dropped the model and holds a request of it; its engine is stopped"
LOAD_S = 5.0
# Patience below the time of a load: what keeps the engine then is that the server loads a successor.
VARIANT = f"""
import time
from pathlib import Path

patched.Absence = partial(triton_model.Absence, patience_s=1.0)
SWITCHES = Path(__file__).parents[1]


class TritonPythonModel(triton_model.TritonPythonModel):
    kept = []

    def initialize(self, args):
        if (SWITCHES / "slow").exists():
            time.sleep({LOAD_S})
        if (SWITCHES / "fail").exists():
            raise RuntimeError("told to fail")
        super().initialize(args)

    def execute(self, requests):
        if (SWITCHES / "keep").exists():  # the server then waits for the request as for one that it has lost
            self.kept += [request.get_response_sender() for request in requests]
        return super().execute(requests)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_model(tmp_path / "models", "llm", OPTIONS)
    (folder / "1" / "model.py").write_text(TICKING.read_text() + VARIANT)
    return folder


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[RunningServer]:
    options = ["--model-control-mode=explicit", "--load-model=llm", "--exit-timeout-secs=3"]
    with running(folder.parent, tmp_path / "log", options) as server:
        yield server


def change(folder: Path) -> None:
    """Makes the server see a new version of the model."""
    with (folder / "config.pbtxt").open("a") as config:
        config.write(f"# {time.time()}\n")


def test_a_dropped_model_gives_its_engine_back(folder: Path, server: RunningServer) -> None:
    (folder / "keep").touch()
    assert ask(server, "hi", SHORT).text == "aaaaa"
    assert DROPPED not in server.log_text()
    assert post(server, "repository/models/llm/unload")[0] == 200
    server.wait_for_log(DROPPED, 30)


@pytest.mark.parametrize("succeeds", [True, False])
def test_an_engine_stays_while_its_model_is_reloaded(folder: Path, server: RunningServer, succeeds: bool) -> None:
    assert ask(server, "hi", SHORT).text == "aaaaa"
    (folder / "slow").touch()
    if not succeeds:
        (folder / "fail").touch()
    change(folder)
    assert (post(server, "repository/models/llm/load")[0] == 200) is succeeds
    assert ask(server, "hi", SHORT).text == "aaaaa"
    assert DROPPED not in server.log_text()
