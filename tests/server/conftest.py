"""One server for the tests that leave it as it is: the same checkpoint with n-gram speculation and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from model_repository import NGRAM, small_engine, write_model
from running_server import RunningServer, running


@pytest.fixture(scope="session")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the models `llm` (n-gram speculation) and `plain` (none)."""
    folder = tmp_path_factory.mktemp("server")
    repository = folder / "models"
    write_model(repository, "llm", {**small_engine(checkpoint), **NGRAM})
    # Asked a thousand times a second whether clients have gone: every answer races with such a question.
    write_model(repository, "plain", small_engine(checkpoint, **{"serving.cancel_poll_interval_s": "0.001"}))
    with running(repository, folder / "tritonserver.log") as started:
        yield started
