"""Two Triton instances with two NPU groups: which devices each engine has, and that both serve."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_repository import write_model
from running_server import RunningServer, running
from server.client import ask_all
from trained.text import held_out_documents

from .npu_engine import npu_engine, speculation

METRICS_DEADLINE_S = 20.0
TWO_INSTANCES = "instance_group [ { kind: KIND_CPU count: 2 } ]\n"
PROMPTS = [document.prompt for document in held_out_documents(8, seed=2)]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(trained: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("groups")
    groups = {"serving.npu_groups": "1;3"}
    parameters = npu_engine(trained / "target", cache, **groups, **speculation("ngram", trained))
    write_model(folder / "models", "llm", parameters, TWO_INSTANCES)
    with running(folder / "models", folder / "tritonserver.log") as started:
        yield started


def test_each_engine_has_the_devices_of_its_instances_group(server: RunningServer) -> None:
    """The plugin takes them from RBLN_VISIBLE_DEVICES, and each engine says which it took."""
    selected = re.findall(r"Local rank: 0, Selected devices: (\S+)", server.log_text())
    assert sorted(selected) == ["1", "3"]


def test_requests_reach_both(server: RunningServer) -> None:
    answers = ask_all(server, PROMPTS, {"temperature": 0.0, "max_tokens": 64, "ignore_eos": True})
    assert [sum(answer.tokens) for answer in answers] == [64] * len(PROMPTS)
    deadline = time.monotonic() + METRICS_DEADLINE_S
    while sum(tokens := tokens_by_instance(server)) < 64 * len(PROMPTS):
        assert time.monotonic() < deadline, tokens
    assert len(tokens) == 2
    assert min(tokens) >= 64


def tokens_by_instance(server: RunningServer) -> list[float]:
    """Tokens generated, as each instance's metrics say; the warm-up's are among them."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as response:
        text = response.read().decode()
    pattern = r'^vllm:generation_tokens_total\{.*instance="llm_0_[01]".*\} (\S+)$'
    return [float(value) for value in re.findall(pattern, text, re.M)]
