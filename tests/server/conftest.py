"""One server for the tests that leave it as it is: the same checkpoint with n-gram speculation and without.

In front of each stands a unary model; two examples ask one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from model_repository import NGRAM, copy_example, small_engine, write_model, write_unary_model
from running_server import RunningServer, running


@pytest.fixture(scope="session")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the models `llm` (n-gram speculation) and `plain` (none, and a client may cancel by id)."""
    folder = tmp_path_factory.mktemp("server")
    repository = folder / "models"
    write_model(repository, "llm", {**small_engine(checkpoint), **NGRAM})
    # Asked a thousand times a second whether clients have gone: every answer races with such a question.
    plain = {"serving.cancel_poll_interval_s": "0.001", "serving.allow_cancel_by_id": "true"}
    write_model(repository, "plain", small_engine(checkpoint, **plain))
    write_unary_model(repository, "llm_unary", "llm")
    write_unary_model(repository, "plain_unary", "plain")
    write_unary_model(repository, "orphan_unary", "nobody")
    copy_example(repository, "bls")
    copy_example(repository, "ensemble")
    with running(repository, folder / "tritonserver.log") as started:
        yield started
