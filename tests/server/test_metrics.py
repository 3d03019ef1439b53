"""vLLM's own metrics on Triton's metrics endpoint."""

from __future__ import annotations

import re
import time
import urllib.request

import pytest

from running_server import RunningServer

from .client import ask

SAMPLING = {"temperature": 0.0, "max_tokens": 64, "ignore_eos": True}
SETTLED_S = 10.0


def scrape(server: RunningServer, model: str) -> dict[str, float]:
    """Sum over its series of every vLLM metric of one model."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as response:
        text = response.read().decode()
    totals: dict[str, float] = {}
    for name, labels, value in re.findall(r"^((?:rbln_)?vllm:\w+)\{(.*)\} (\S+)$", text, re.M):
        if f'model="{model}"' in labels:
            totals[name] = totals.get(name, 0.0) + float(value)
    return totals


def settled(server: RunningServer, model: str) -> dict[str, float]:
    """The metrics once two reads, more than an interval apart, agree."""
    deadline = time.monotonic() + SETTLED_S
    last: dict[str, float] = {}
    while not (now := scrape(server, model)) or now != last:
        last, again = now, time.monotonic() + 2.5
        while time.monotonic() < again:
            time.sleep(0)
        assert time.monotonic() < deadline
    return now


@pytest.mark.parametrize("model", ["llm", "plain"])
def test_the_counters_grow_by_what_a_request_says_of_itself(server: RunningServer, model: str) -> None:
    before = settled(server, model)
    answer = ask(server, "one two three one two three one two", SAMPLING, model=model, switches=["return_speculation"])
    after = settled(server, model)

    def gained(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    assert gained("vllm:generation_tokens_total") == 64
    assert gained("vllm:e2e_request_latency_seconds_count") == 1
    if model == "llm":
        assert gained("vllm:spec_decode_num_draft_tokens_total") == answer.last["num_draft_tokens"][0] > 0
        assert gained("vllm:spec_decode_num_accepted_tokens_total") == answer.last["num_accepted_tokens"][0] > 0
        drafted = after["vllm:spec_decode_num_draft_tokens_total"]
        accepted = after["vllm:spec_decode_num_accepted_tokens_total"]
        assert after["rbln_vllm:spec_decode_acceptance_rate"] == pytest.approx(accepted / drafted)
        assert after["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == accepted
