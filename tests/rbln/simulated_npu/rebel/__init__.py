"""A simulated RBLN NPU: what vllm-rbln 0.12 imports from rebel-compiler 0.12, computed on the CPU.

Hardware is stood in for in five places, each a module:

    ``core.torch_compile``   the compiler: a graph isn't compiled but kept and run as it is
    ``_memory``              the NPU's memory: real storage behind the KV cache, which the plugin keeps on "meta"
    ``_attention``           the paged attention kernels
    ``_sampling``            argmax, top-k/top-p and the rejection sampler
    ``_device``              the device module ``torch.rbln``

It proves nothing of compilation, NPU numerics, shape limits, speed, memory sizes or several devices.
"""

import logging
import os

from rebel import _attention, _device, _sampling
from rebel.compile_context import CompileContext

__version__ = "0.12.0"
__all__ = [
    "AsyncRuntime",
    "CompileContext",
    "RBLNCompiledModel",
    "Runtime",
    "compile",
    "compile_from_torch",
    "context_of",
    "device_count",
    "get_npu_name",
    "manual_seed",
    "npu_is_available",
]

_ANNOUNCED = "SIMULATED_NPU_ANNOUNCED"


class Runtime:
    """Executes a compiled model of the optimum implementation: not simulated."""

    def __init__(self, *_, **__):
        raise NotImplementedError("the simulated NPU has no runtime for the optimum implementation")


class AsyncRuntime(Runtime):
    """As ``Runtime``."""


class RBLNCompiledModel(Runtime):
    """As ``Runtime``."""


def compile_from_torch(*_, **__):
    """Compiles a model of the optimum implementation: not simulated."""
    raise NotImplementedError("the simulated NPU compiles nothing for the optimum implementation")


def compile(*_, dtype="", **__):
    """The plugin reads this signature only, to learn whether ``dtype`` is an option."""
    raise NotImplementedError("the simulated NPU compiles nothing")


def get_npu_name(device_id=0):
    """None, as on a host without an NPU: RBLN_FORCE_NPU_NAME then names the target."""


def npu_is_available(device_id=0):
    """No NPU is."""
    return False


def device_count():
    """No NPU is there."""
    return 0


def manual_seed(seed):
    """Seeds the sampler of the device; here PyTorch's own, which the plugin has seeded already."""


def context_of(tensor):
    """The device context of a tensor, for transfers between NPUs: there is none."""
    raise NotImplementedError("the simulated NPU has no device contexts")


def _announce():
    """Once for a process and those that it starts."""
    if _ANNOUNCED not in os.environ:
        os.environ[_ANNOUNCED] = "1"
        logging.getLogger("rebel").warning("This is a SIMULATED RBLN NPU: everything runs on the CPU, for tests only.")


_attention.register()
_sampling.register()
_device.register()
_announce()
