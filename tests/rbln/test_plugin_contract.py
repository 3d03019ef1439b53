"""config.pbtxt's parameters -> what the plugin makes of them or refuses: the contract with vllm-rbln 0.12.0."""

from __future__ import annotations

import importlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from rbln_vllm_backend import config, environment, rbln, rbln_options, vllm_engine
from rbln_vllm_backend.values import Choice, Integer, Switch

from .forked import FailedInFork, import_what_it_imports, in_a_fork
from .npu_engine import METHODS, npu_engine, speculation, target_of


@pytest.fixture(scope="module", autouse=True)
def vllm(trained: Path, cache: Path) -> None:
    """Imported once, with everything that the cases share but the plugin's own later modules, which keep choices."""
    importlib.import_module("vllm.v1.engine.async_llm")
    eagle = npu_engine(trained / "target", cache, **speculation("eagle", trained))
    import_what_it_imports(facts, eagle, but="vllm_rbln")


def facts(parameters: dict[str, str]) -> dict[str, Any]:
    """What the engine would get."""
    from vllm.platforms import current_platform

    settings = config.read(parameters, Path("/"))
    environment.prepare(settings.environment, settings.platform)
    _, built = vllm_engine.configured(settings)
    speculative = built.speculative_config
    return {
        "platform": type(current_platform).__name__,
        "scheduler": str(built.scheduler_config.scheduler_cls).rsplit(".", 1)[-1],
        "worker": built.parallel_config.worker_cls.rsplit(".", 1)[-1],
        "async_scheduling": built.scheduler_config.async_scheduling,
        "max_num_seqs": built.scheduler_config.max_num_seqs,
        "block_size": built.cache_config.block_size,
        "method": speculative.method if speculative else None,
        "num_speculative_tokens": speculative.num_speculative_tokens if speculative else None,
        "options": asdict(built.additional_config),
    }


@pytest.mark.parametrize("method", [None, *METHODS])
def test_the_plugins_scheduler_and_worker_run_every_method_synchronously(
    trained: Path, cache: Path, method: str | None
) -> None:
    chosen = speculation(method, trained) if method else {}
    parameters = npu_engine(target_of(method or "", trained), cache, **chosen)
    del parameters["model_impl"]  # with speculation it is ours to set; without it `auto` would take optimum for a Llama
    if method is None:
        parameters["model_impl"] = "vllm"
    built = in_a_fork(facts, parameters)
    assert built["platform"] == "RblnPlatform"
    assert (built["scheduler"], built["worker"]) == ("RBLNScheduler", "RBLNWorker")
    assert built["async_scheduling"] is False
    assert built["method"] == method
    assert built["num_speculative_tokens"] == (3 if method else None)
    assert (built["max_num_seqs"], built["block_size"]) == (8, 16)


@pytest.mark.parametrize("method", ["ngram", "eagle"])
def test_asynchronous_scheduling_asked_for_beside_speculation_is_off(trained: Path, cache: Path, method: str) -> None:
    parameters = npu_engine(trained / "target", cache, async_scheduling="true", **speculation(method, trained))
    assert in_a_fork(facts, parameters)["async_scheduling"] is False


def test_without_a_number_of_sequences_the_default_is_one(trained: Path, cache: Path) -> None:
    parameters = npu_engine(trained / "target", cache)
    del parameters["max_num_seqs"]
    assert in_a_fork(facts, parameters)["max_num_seqs"] == 1


OPTIONS = {
    "num_devices_per_local_rank": ("2", 2),
    "use_custom_sampler": ("false", False),
    "sub_block_size": ("64", 64),
    "enforce_model_fp32": ("true", True),
    "use_batch_attn_opt": ("true", True),
    "use_custom_kernel": ("true", True),
    "use_dynamic_kv_cache": ("false", False),
    "enable_sub_block_cache": ("false", False),
    "specialize_moe_decode": ("false", False),
    "use_moe_tokens_mask": ("false", False),
    "use_all2all_dispatch": ("true", True),
    "use_all2all_combine": ("true", True),
    "decode_batch_bucket_strategy": ("manual", "manual"),
    "decode_batch_bucket_min": ("2", 2),
    "decode_batch_bucket_step": ("4", 4),
    "decode_batch_bucket_limit": ("8", 8),
    "decode_batch_bucket_manual_buckets": ("[1, 8]", [1, 8]),
    "use_w8a8": ("true", True),
    "compile_dtype": ("bfloat16", "bfloat16"),
}


def test_every_rbln_option_arrives(trained: Path, cache: Path) -> None:
    given = {f"rbln_{name}": text for name, (text, _) in OPTIONS.items()}
    # An ATOM device or a Rebel100 would refuse one or the other: the device's name is left open.
    given["env.RBLN_FORCE_NPU_NAME"] = "RBLN-?"
    arrived = in_a_fork(facts, npu_engine(trained / "target", cache, **given))["options"]
    assert arrived == {name: value for name, (_, value) in OPTIONS.items()}


def test_the_table_of_options_is_the_plugins() -> None:
    from vllm_rbln import config as plugins

    flags = {
        cls: {item.name for item in fields(cls) if not item.metadata.get("no_flag")}
        for cls in (plugins.RBLNConfigBase, plugins.RBLNConfig, plugins.OptimumRBLNConfig)
    }
    common = flags[plugins.RBLNConfigBase]
    assert set(rbln_options.COMMON) == common
    assert set(rbln_options.VLLM) == flags[plugins.RBLNConfig] - common
    assert set(rbln_options.OPTIMUM) == flags[plugins.OptimumRBLNConfig] - common


def test_the_tables_rules_are_of_the_plugins_types() -> None:
    from vllm_rbln.config import RBLNConfig

    hints = get_type_hints(RBLNConfig)
    kinds = {Switch: (bool, bool | None), Integer: (int, int | None)}
    for name, rule in {**rbln_options.COMMON, **rbln_options.VLLM}.items():
        if type(rule) in kinds:
            assert hints[name] in kinds[type(rule)], name
        if isinstance(rule, Choice):
            words = set(hints[name].__args__) - {""}  # empty means the default: then the parameter is left out
            assert set(rule.options) == words, name


def plugin_says(parameters: dict[str, str]) -> str:
    """The plugin's own refusal of engine flags that ours would not have let through."""

    def unchecked() -> None:
        # As for a CPU, where our rules for NPUs are silent; "optimum" is then no implementation for us.
        others = {key: value for key, value in parameters.items() if key != "model_impl"}
        settings = config.read({**others, "serving.platform": "cpu"}, Path("/"))
        flags = {**settings.engine_flags, "model_impl": parameters["model_impl"]}
        from vllm.engine.arg_utils import AsyncEngineArgs

        from rbln_vllm_backend import vllm_flags

        AsyncEngineArgs.from_cli_args(vllm_flags.parse(flags, settings.speculation)).create_engine_config()

    with pytest.raises(FailedInFork) as caught:
        in_a_fork(unchecked)
    return str(caught.value)


def test_optimum_and_speculation_are_refused_by_the_plugin_too(trained: Path, cache: Path) -> None:
    parameters = npu_engine(trained / "target", cache, **speculation("ngram", trained))
    del parameters["env.VLLM_CACHE_ROOT"]
    reason = "Speculative decoding is not supported on the optimum model path. Set --model-impl vllm to use it."
    assert reason in plugin_says({**parameters, "model_impl": "optimum"})
    assert reason in plugin_says({**parameters, "model_impl": "auto"})


def test_the_plugin_refuses_the_vllm_implementation_on_atom(
    trained: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBLN_FORCE_NPU_NAME", "RBLN-CA25")
    assert plugin_says(npu_engine(trained / "target", cache)) == (
        "The vllm model path is not supported on RBLN-CA25; --model-impl vllm selected it. Use --model-impl optimum."
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"enforce_eager": "true"}, "enforce_eager=True requires VLLM_RBLN_USE_DEVICE_TENSOR=1."),
        ({"additional_config.foo": "1"}, "additional_config takes only RBLNConfig fields, and ['foo'] are not fields."),
        (
            {"enable_chunked_prefill": "false", "max_num_batched_tokens": "512"},
            "Disabling chunked prefill is not supported on RBLN.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_only_the_plugin_refuses_comes_with_its_reason(
    trained: Path, cache: Path, more: dict[str, str], words: str
) -> None:
    with pytest.raises(FailedInFork) as caught:
        in_a_fork(facts, npu_engine(trained / "target", cache, **more))
    assert caught.value.name == "EngineStartError"
    assert str(caught.value).startswith("vLLM refuses the configuration: ")
    assert words in str(caught.value)


def longest_draft() -> int:
    from vllm_rbln.v1.sample.rbln_rejection_sampler import RBLNRejectionSamplerImpl

    return int(RBLNRejectionSamplerImpl.max_spec_len)


def test_the_longest_draft_is_what_the_npus_sampler_takes() -> None:
    assert in_a_fork(longest_draft) == rbln._MOST_DRAFT_TOKENS


def test_a_plugin_that_is_left_out_fails_the_load(trained: Path, cache: Path) -> None:
    """In a process of its own: the platform is chosen once."""
    import subprocess
    import sys

    program = f"""
from pathlib import Path
from rbln_vllm_backend import config, environment, vllm_engine
settings = config.read({npu_engine(trained / "target", cache, **{"env.VLLM_PLUGINS": "mine"})!r}, Path("/"))
environment.prepare(settings.environment, settings.platform)
try:
    vllm_engine.VllmEngine(settings).start()
except Exception as error:
    print(f"SAID {{type(error).__name__}}: {{error}}")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.rsplit("SAID ", 1)[-1].strip() == (
        "EngineStartError: The platform is rbln (serving.platform is rbln), but vLLM has taken CpuPlatform. See that "
        "VLLM_PLUGINS, if it is set, names rbln, rbln_custom_ops, rbln_new_models for NPUs, and that "
        "VLLM_TARGET_DEVICE is not set."
    )


def test_on_a_cpu_the_installed_plugin_is_left_out(trained: Path, cache: Path) -> None:
    import subprocess
    import sys

    parameters = {"model": str(trained / "target"), "dtype": "float32", "serving.platform": "cpu"}
    program = f"""
from pathlib import Path
from rbln_vllm_backend import config, environment, vllm_engine
settings = config.read({parameters!r}, Path("/"))
environment.prepare(settings.environment, settings.platform)
vllm_engine.configured(settings)
from vllm.platforms import current_platform
print("SAID", type(current_platform).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.rsplit("SAID ", 1)[-1].strip() == "CpuPlatform"
