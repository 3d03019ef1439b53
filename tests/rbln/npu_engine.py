"""Parameters of engines on the simulated NPU."""

from __future__ import annotations

from pathlib import Path

# What the simulation needs: the name of a device that isn't there, its memory behind the KV cache (not device tensors),
# and one thread, since two cores are shared by several processes.
ENVIRONMENT = {
    "RBLN_FORCE_NPU_NAME": "RBLN-CR03",
    "RBLN_NUM_THREADS": "1",
    "VLLM_RBLN_USE_DEVICE_TENSOR": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}
METHODS = ("ngram", "suffix", "eagle", "eagle3", "medusa", "mtp")


def npu_engine(checkpoint: Path, cache: Path, **more: str) -> dict[str, str]:
    """An engine that is ready soon: a short context, small batches, and a KV cache of a fixed size."""
    return {
        "model": str(checkpoint),
        "model_impl": "vllm",
        "dtype": "float32",
        "max_model_len": "512",
        "max_num_seqs": "8",
        "max_num_batched_tokens": "128",
        "num_gpu_blocks_override": "257",
        "serving.platform": "rbln",
        "env.VLLM_CACHE_ROOT": str(cache),
        **{f"env.{name}": value for name, value in ENVIRONMENT.items()},
        **more,
    }


def speculation(method: str, trained: Path) -> dict[str, str]:
    """The method's parameters on the trained checkpoints, three draft tokens a step."""
    parameters = {"speculative_config.method": method, "speculative_config.num_speculative_tokens": "3"}
    if (trained / method).is_dir():
        parameters["speculative_config.model"] = str(trained / method)
    if method == "ngram":
        parameters |= {"speculative_config.prompt_lookup_min": "1", "speculative_config.prompt_lookup_max": "4"}
    return parameters


def target_of(method: str, trained: Path) -> Path:
    """The checkpoint that the method drafts for."""
    return trained / ("mtp_target" if method == "mtp" else "target")
