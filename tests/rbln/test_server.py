"""Every documented method on the real RBLN plugin, through a real tritonserver: what a user of an NPU would see."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from model_repository import write_model
from running_server import RunningServer, running
from server.client import Answer, Stream, ask, ask_all
from server.test_metrics import settled
from trained.text import held_out_documents

from .npu_engine import METHODS, npu_engine, speculation, target_of

PROMPTS = [document.prompt for document in held_out_documents(8, seed=1)]
GREEDY = {"temperature": 0.0, "max_tokens": 96, "ignore_eos": True}
# Two servers, since seven engines at once are too much for a small machine.
SERVED = (("plain", "ngram", "suffix", "eagle"), ("eagle3", "medusa", "mtp"))

pytestmark = pytest.mark.timeout(900)


@contextmanager
def serving(names: tuple[str, ...], trained: Path, cache: Path, folder: Path) -> Iterator[RunningServer]:
    """A server with one model for each name, which is a method or "plain"."""
    for name in names:
        chosen = {} if name == "plain" else speculation(name, trained)
        write_model(folder / "models", name, npu_engine(target_of(name, trained), cache, **chosen))
    os.environ.pop("SIMULATED_NPU_ANNOUNCED", None)  # else it was said in this process, for all that it starts
    with running(folder / "models", folder / "tritonserver.log") as server:
        yield server


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """The texts without speculation; the first server fills it."""
    return []


@pytest.fixture(scope="module", params=SERVED, ids=" ".join)
def server(
    request: pytest.FixtureRequest,
    trained: Path,
    cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
    expected: list[str],
) -> Iterator[RunningServer]:
    with serving(request.param, trained, cache, tmp_path_factory.mktemp("server")) as started:
        if "plain" in request.param:
            expected += [answer.text for answer in ask_all(started, PROMPTS, GREEDY, model="plain")]
        yield started


def each_method(server: RunningServer) -> Iterator[str]:
    names = [name for name in METHODS if (server.log.parent / "models" / name).is_dir()]
    assert names
    yield from names


def numbers(answer: Answer) -> tuple[int, int, float]:
    last = answer.last
    return int(last["num_draft_tokens"][0]), int(last["num_accepted_tokens"][0]), float(last["acceptance_rate"][0])


def test_eight_streams_have_the_tokens_of_no_speculation_and_their_own_numbers(
    server: RunningServer, expected: list[str]
) -> None:
    for method in each_method(server):
        answers = ask_all(server, PROMPTS, GREEDY, model=method, switches=["return_speculation"])
        assert [answer.text for answer in answers] == expected, method
        assert [answer.finals for answer in answers] == [1] * len(PROMPTS), method
        assert [sum(answer.tokens) for answer in answers] == [96] * len(PROMPTS), method
        drafted = sum(numbers(answer)[0] for answer in answers)
        accepted = sum(numbers(answer)[1] for answer in answers)
        assert 0 < accepted < drafted, method
        for answer in answers:
            draft_tokens, accepted_tokens, rate = numbers(answer)
            assert rate == pytest.approx(accepted_tokens / draft_tokens)
        # Several tokens a response: a step gives one of the target's own, and what was accepted of its draft.
        assert sum(len(answer.tokens) for answer in answers) < 96 * len(PROMPTS), method


def test_what_the_requests_say_is_what_the_metrics_say(server: RunningServer) -> None:
    methods = list(each_method(server))
    before = [settled(server, method) for method in methods]
    told = [
        [numbers(ask(server, prompt, GREEDY, model=method, switches=["return_speculation"])) for prompt in PROMPTS[:2]]
        for method in methods
    ]
    for method, old, answers in zip(methods, before, told, strict=True):
        now = settled(server, method)
        drafted, accepted, by_position = (
            now[f"vllm:spec_decode_num_{name}_total"] - old[f"vllm:spec_decode_num_{name}_total"]
            for name in ("draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
        )
        assert drafted == sum(answer[0] for answer in answers), method
        assert accepted == by_position == sum(answer[1] for answer in answers), method


def test_a_later_draft_token_is_accepted_no_more_often_than_an_earlier_one(server: RunningServer) -> None:
    for method in each_method(server):
        shares = acceptance_by_position(server, method)
        print(f"{method}: acceptance by position {', '.join(f'{share:.2f}' for share in shares)}")
        assert shares[0] > 0
        assert shares == sorted(shares, reverse=True), method


def acceptance_by_position(server: RunningServer, model: str) -> list[float]:
    """The share of drafting steps whose n-th draft token was accepted, over the server's life."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as response:
        text = response.read().decode()
    series = re.findall(r"^vllm:spec_decode_num_(drafts|accepted_tokens_per_pos)_total\{(.*)\} (\S+)$", text, re.M)
    mine = [(name, labels, float(value)) for name, labels, value in series if f'model="{model}"' in labels]
    (drafts,) = (value for name, _, value in mine if name == "drafts")
    positions = {labels.split('position="')[1].split('"')[0]: value for name, labels, value in mine if name != "drafts"}
    return [positions[position] / drafts for position in sorted(positions)]


def test_a_client_that_goes_away_leaves_the_others_alone(server: RunningServer, expected: list[str]) -> None:
    for method in each_method(server):
        gone = Stream(server, PROMPTS[0], {**GREEDY, "max_tokens": 400}, model=method)
        gone.first_piece()
        gone.cancel()
        answers = ask_all(server, PROMPTS[1:4], GREEDY, model=method)
        assert [answer.text for answer in answers] == expected[1:4], method


def test_the_log_says_simulation_platform_and_device(server: RunningServer) -> None:
    log = server.log_text()
    assert "This is a SIMULATED RBLN NPU" in log
    assert "The platform is rbln (serving.platform is rbln)" in log
    for method in each_method(server):
        assert f"speculation {method}, context 512 tokens, at most 8 sequences at once" in log
