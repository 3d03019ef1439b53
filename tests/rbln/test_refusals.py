"""What an operator sees when it can't work on an NPU: the whole message, soon, and before any weights are read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_repository import write_model
from running_server import RunningServer, running
from server.client import post

from .npu_engine import npu_engine, speculation

EARLY_S = 15.0  # before vLLM is imported
STARVED_S = (
    240.0  # with vLLM's import, which takes 10 s of two cores, and minutes on a machine that has others to serve
)
TWO_INSTANCES = "instance_group [ { kind: KIND_CPU count: 2 } ]\n"
NGRAM = {"speculative_config.method": "ngram", "speculative_config.num_speculative_tokens": "3"}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server without a model; each test loads one."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "models").mkdir()
    with running(folder / "models", folder / "tritonserver.log", ["--model-control-mode=explicit"]) as started:
        yield started


CASES = {
    "optimum": (
        {"model_impl": "optimum", **NGRAM},
        "",
        "1 fault in config.pbtxt:\n"
        "  - model_impl = 'optimum': speculative decoding needs the vllm model implementation, and the engine "
        "refuses it on "
        'this one. Set model_impl to "vllm", or remove the speculation.',
    ),
    "ngram_gpu": (
        {**NGRAM, "speculative_config.method": "ngram_gpu"},
        "",
        "1 fault in config.pbtxt:\n"
        "  - speculative_config.method = 'ngram_gpu': vllm-rbln 0.12 has no proposer for this method, and would say "
        "so only "
        "after loading the weights. Set it to one of ngram, suffix, eagle, eagle3, medusa, mtp.",
    ),
    "draft_model": (
        {**NGRAM, "speculative_config.method": "draft_model", "speculative_config.model": "{trained}/draft_model"},
        "",
        "1 fault in config.pbtxt:\n"
        "  - speculative_config.method = 'draft_model': vllm-rbln 0.12 has no proposer for this method, and would "
        "say so "
        "only after loading the weights. Set it to one of ngram, suffix, eagle, eagle3, medusa, mtp.",
    ),
    "atom": (
        {**NGRAM, "env.RBLN_FORCE_NPU_NAME": "RBLN-CA25"},
        "",
        "1 fault in config.pbtxt:\n"
        "  - speculative_config.method = 'ngram': the NPU is RBLN-CA25, an ATOM device: it runs the optimum "
        "implementation "
        "only, which can't speculate. Remove the speculation, or serve this model on a Rebel100.",
    ),
    "no_npu": (
        {"env.RBLN_FORCE_NPU_NAME": ""},
        "",
        "There is no RBLN NPU here: the runtime finds none, and RBLN_FORCE_NPU_NAME doesn't name one to compile for. "
        "See "
        "that the driver is loaded and that /dev/rbln0 is passed into the container.",
    ),
    "two_instances": (
        {},
        TWO_INSTANCES,
        "1 fault in config.pbtxt:\n"
        "  - instance_group = 'count 2': each instance is an engine of its own, and two engines can't share a "
        "device. Give "
        "each its NPUs with serving.npu_groups, or set the count to 1.",
    ),
    "group_size": (
        {"serving.npu_groups": "0,1;2,3", "tensor_parallel_size": "4"},
        TWO_INSTANCES,
        "1 fault in config.pbtxt:\n"
        "  - serving.npu_groups = '0,1;2,3': the group 0,1 has 2 NPUs, and an engine needs 4 (tensor_parallel_size "
        "4). Make "
        "the groups as large as the engine, or change its size.",
    ),
    "two_devices": (
        {"rbln_num_devices_per_local_rank": "2"},
        "",
        "1 fault in config.pbtxt:\n"
        "  - rbln_num_devices_per_local_rank = 2: vllm-rbln 0.12 takes one NPU for each rank on RBLN-CR03, and would "
        "stop only after loading the weights. Set tensor_parallel_size instead.",
    ),
    "other_option": (
        {"rbln_optimum_overrides": "{{}}"},
        "",
        "1 fault in config.pbtxt:\n"
        "  - rbln_optimum_overrides = '{}': the option belongs to the optimum implementation, and model_impl is vllm. "
        "Remove it, or change model_impl.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_work_is_refused_with_the_whole_sentence(
    server: RunningServer, trained: Path, cache: Path, case: str
) -> None:
    parameters, further, message = CASES[case]
    filled = {key: text.format(trained=trained) for key, text in parameters.items()}
    seconds, said = refused(server, case, npu_engine(trained / "target", cache, **filled), further)
    assert said == message
    assert seconds < EARLY_S


def test_the_plugins_own_refusal_comes_through(server: RunningServer, trained: Path, cache: Path) -> None:
    parameters = npu_engine(trained / "target", cache, enforce_eager="true")
    seconds, said = refused(server, "eager", parameters, "")
    assert said.startswith("vLLM refuses the configuration: ")
    assert "enforce_eager=True requires VLLM_RBLN_USE_DEVICE_TENSOR=1." in said
    assert seconds < STARVED_S


def test_a_plugin_that_is_left_out_is_never_a_cpu(server: RunningServer, trained: Path, cache: Path) -> None:
    parameters = npu_engine(trained / "target", cache, **{"env.VLLM_PLUGINS": "mine"}, **speculation("ngram", trained))
    seconds, said = refused(server, "left_out", parameters, "")
    assert said == (
        "The platform is rbln (serving.platform is rbln), but vLLM has taken CpuPlatform. See that VLLM_PLUGINS, if "
        "it is "
        "set, names rbln, rbln_custom_ops, rbln_new_models for NPUs, and that VLLM_TARGET_DEVICE is not set."
    )
    assert seconds < STARVED_S


def refused(server: RunningServer, name: str, parameters: dict[str, str], further: str) -> tuple[float, str]:
    """After how many seconds the server refused the load, and what it said, without its own words around ours."""
    write_model(server.log.parent / "models", name, parameters, further)
    began = time.monotonic()
    status, body = post(server, f"repository/models/{name}/load")
    took = time.monotonic() - began
    print(f"{name}: refused after {took:.1f} s")
    assert status == 400
    assert "Loading safetensors" not in server.log_text()
    said = str(body["error"]).split("failed to load all instances: ")[-1].split("TritonModelException: ")[-1]
    return took, said.split("\n\nAt:\n")[0]
