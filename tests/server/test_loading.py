"""A bad configuration fails the load, with a message that names the parameter and the remedy."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_repository import NGRAM, small_engine, write_model
from running_server import RunningServer, running

from .client import post

AT_ONCE_S = 5.0  # before vLLM is imported
BEFORE_WEIGHTS = "Loading safetensors"


@pytest.fixture(scope="module")
def empty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """A server that loads what it is told to."""
    folder = tmp_path_factory.mktemp("loading")
    repository = folder / "models"
    repository.mkdir()
    with running(repository, folder / "log", ["--model-control-mode=explicit"]) as server:
        yield server, repository


def load(
    empty_server: tuple[RunningServer, Path], name: str, parameters: dict[str, str], further: str = ""
) -> tuple[float, str]:
    """Seconds and message of a load that must fail."""
    server, repository = empty_server
    write_model(repository, name, parameters, further)
    began = time.monotonic()
    status, body = post(server, f"repository/models/{name}/load")
    assert status == 400, body
    return time.monotonic() - began, re.sub(r"\s+", " ", body["error"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"serving.warmpu": "true"}, "serving.warmpu = 'true': no such option. Known: serving.warmup."),
        ({"serving.warmup": "maybe"}, "serving.warmup = 'maybe': must be true or false."),
        (
            {"speculative_config.method": "ngram"},
            "speculative_config.num_speculative_tokens: the number of tokens to draft in a step is missing. "
            'Set speculative_config.num_speculative_tokens, for example to "3".',
        ),
        (
            {**NGRAM, "speculative_config.model": "org/draft"},
            "speculative_config.model = 'org/draft': ngram takes no draft checkpoint. "
            "Remove it, or choose eagle, eagle3 or medusa.",
        ),
        ({"model": ""}, "model: the checkpoint to serve is missing."),
    ],
    ids=["unknown option", "bad switch", "no number", "draft for ngram", "no model"],
)
def test_what_needs_no_engine_is_refused_at_once(
    empty_server: tuple[RunningServer, Path], checkpoint: Path, change: dict[str, str], words: str
) -> None:
    seconds, message = load(empty_server, "early", {**small_engine(checkpoint), **change})
    assert words in message
    assert seconds < AT_ONCE_S


def test_an_npu_asked_for_and_absent_is_never_a_cpu(empty_server: tuple[RunningServer, Path], checkpoint: Path) -> None:
    seconds, message = load(empty_server, "npu", small_engine(checkpoint, **{"serving.platform": "rbln"}))
    assert (
        "serving.platform is rbln, but vllm-rbln and rebel-compiler can't be found. Install what is missing: "
        "`pip install vllm-rbln==0.12.*`; `pip install rebel-compiler==0.12.*` from Rebellions' package index, "
        "which needs an account."
    ) in message
    assert seconds < AT_ONCE_S


def test_what_only_vllms_parser_knows_is_refused_before_any_weights(
    empty_server: tuple[RunningServer, Path], checkpoint: Path
) -> None:
    change = {"max_model_length": "5", "max_num_seqs": "1.5"}
    _, message = load(empty_server, "flags", {**small_engine(checkpoint), **change})
    assert "2 faults in config.pbtxt:" in message
    assert "max_model_length = '5': no such parameter. The nearest known: max_model_len." in message
    assert "max_num_seqs = '1.5': invalid int value: '1.5'." in message
    assert BEFORE_WEIGHTS not in empty_server[0].log_text()


def test_what_vllms_configuration_refuses_is_told_before_any_weights(
    empty_server: tuple[RunningServer, Path], checkpoint: Path
) -> None:
    _, message = load(empty_server, "context", small_engine(checkpoint, max_model_len="100000"))
    assert "vLLM refuses the configuration" in message
    assert "max_model_len" in message
    assert BEFORE_WEIGHTS not in empty_server[0].log_text()
