"""After a workload and quiet, Triton shows every sample of the engine's registry, and shows it with the same value."""

from __future__ import annotations

import re
import shutil
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from model_repository import NGRAM, small_engine, write_model
from running_server import RunningServer, free_ports, running
from waiting import until

from .client import ask_all, post
from .processes import core_of

EXPOSED = Path(__file__).parent / "exposed" / "model.py"
SAMPLING = {"temperature": 0.0, "max_tokens": 48, "ignore_eos": True}
PROMPTS = [f"{number} one two three one two three" for number in range(12)]
QUIET_DEADLINE_S = 60.0
RESTARTED_S = 300.0  # a starved machine needs minutes
TRITONS_OWN = {"model", "version", "instance"}

Exposed = tuple[RunningServer, dict[str, int]]
SampleKey = tuple[str, frozenset[tuple[str, str]]]
Samples = dict[SampleKey, float]


@pytest.fixture(scope="module")
def exposed(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningServer, dict[str, int]]]:
    """A server with two models, one of them with speculation, and the ports of their registries."""
    folder = tmp_path_factory.mktemp("exposed")
    ports = dict(zip(("drafting", "plain"), free_ports(2), strict=True))
    for name, port in ports.items():
        parameters = small_engine(
            checkpoint, **{"env.TEST_REGISTRY_PORT": str(port), "serving.metrics_interval_s": "0.2"}
        )
        model = write_model(folder / "models", name, {**parameters, **(NGRAM if name == "drafting" else {})})
        shutil.copy(EXPOSED, model / "1" / "model.py")
    options = ["--model-control-mode=explicit", "--load-model=*"]
    with running(folder / "models", folder / "tritonserver.log", options) as server:
        yield server, ports


def text_of(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def samples(address: str) -> Samples:
    """vLLM's samples of a metrics endpoint."""
    found: Samples = {}
    for name, labels, value in re.findall(r"^(vllm:\w+)(?:\{(.*)\})? (\S+)$", text_of(address), re.M):
        if not name.endswith("_created"):
            found[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))] = float(value)
    return found


def of_model(all_of_them: Samples, model: str) -> Samples:
    """One model's samples on Triton's endpoint, without the labels that Triton's side adds."""
    return {
        (name, frozenset(pair for pair in labels if pair[0] not in TRITONS_OWN)): value
        for (name, labels), value in all_of_them.items()
        if ("model", model) in labels
    }


def differences(registry: Mapping[object, float], shown: Mapping[object, float]) -> dict[object, object]:
    # Triton prints fewer digits than Python.
    same = {key for key, value in registry.items() if shown.get(key) == pytest.approx(value, rel=1e-5)}
    return {key: (registry.get(key), shown.get(key)) for key in {*registry, *shown} - same}


def assert_equal(
    server: RunningServer, ports: Mapping[str, int], model: str, ended: Mapping[SampleKey, float] | None = None
) -> None:
    """Waits for the registry's values, plus those of ``ended``: the counts of the engine's lives before."""
    deadline = time.monotonic() + QUIET_DEADLINE_S
    while unlike := differences(
        added(samples(f"127.0.0.1:{ports[model]}"), ended or {}), of_model(samples(server.metrics), model)
    ):
        assert time.monotonic() < deadline, unlike
        time.sleep(0.1)


def added(present: Samples, ended: Mapping[SampleKey, float]) -> Samples:
    return {key: present.get(key, 0.0) + ended.get(key, 0.0) for key in {*present, *ended}}


def counts(address: str) -> Samples:
    """What only rises: the samples of a registry but for its gauges."""
    gauges = set(re.findall(r"^# TYPE (vllm:\w+) gauge$", text_of(address), re.M))
    return {key: value for key, value in samples(address).items() if key[0] not in gauges}


def test_two_models_show_each_its_own_registry(exposed: Exposed) -> None:
    server, ports = exposed
    for model in ports:
        assert all(answer.error is None for answer in ask_all(server, PROMPTS, SAMPLING, model=model))
    for model in ports:
        assert_equal(server, ports, model)
    shown = of_model(samples(server.metrics), "drafting")
    assert sum(value for (name, _), value in shown.items() if name == "vllm:spec_decode_num_accepted_tokens_total") > 0
    assert sum(value for (name, _), value in shown.items() if name == "vllm:generation_tokens_total") >= 12 * 48


def test_after_a_reload_the_new_registry_is_shown(exposed: Exposed) -> None:
    server, ports = exposed
    ask_all(server, PROMPTS, SAMPLING, model="plain")
    post(server, "repository/models/plain/unload")
    server.wait_for_log("successfully unloaded 'plain'", 60)
    assert post(server, "repository/models/plain/load")[0] == 200
    ask_all(server, PROMPTS[:5], SAMPLING, model="plain")
    assert_equal(server, ports, "plain")
    assert_equal(server, ports, "drafting")


def test_after_a_restart_of_the_engine_its_lives_add_up(exposed: Exposed) -> None:
    server, ports = exposed
    ask_all(server, PROMPTS, SAMPLING, model="drafting")
    assert_equal(server, ports, "drafting")
    ended = counts(f"127.0.0.1:{ports['drafting']}")
    core_of(server, "drafting").kill()
    until(lambda: "The engine is up again" in server.log_text(), RESTARTED_S)
    answers = ask_all(server, PROMPTS[:5], SAMPLING, model="drafting")
    assert all(answer.error is None for answer in answers)
    assert_equal(server, ports, "drafting", ended)
    generated = sum(value for (name, _), value in ended.items() if name == "vllm:generation_tokens_total")
    shown = of_model(samples(server.metrics), "drafting")
    now = sum(value for (name, _), value in shown.items() if name == "vllm:generation_tokens_total")
    assert now >= generated + 5 * SAMPLING["max_tokens"]
