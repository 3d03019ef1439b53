"""The device module ``torch.rbln`` that torch-rbln brings: an NPU that is not there."""

import contextlib
import sys
import types

import torch


def register():
    """Names PyTorch's spare device type "rbln" and gives it its module."""
    torch.utils.rename_privateuse1_backend("rbln")
    module = types.ModuleType("torch.rbln", __doc__)
    vars(module).update(_FUNCTIONS)
    torch._register_device_module("rbln", module)
    sys.modules["torch.rbln"] = module
    # The plugin empties the accelerator's cache; without a device PyTorch refuses.
    torch.accelerator.empty_cache = _nothing


def _nothing(*_, **__):
    return None


_FUNCTIONS = {
    "is_available": lambda: False,
    "device_count": lambda: 0,
    "current_device": lambda: 0,
    "is_dummy_device": lambda: True,
    "empty_cache": _nothing,
    "offload": contextlib.nullcontext,
    "release_offload_temp_storage": lambda: 0,
    "_is_in_bad_fork": lambda: False,
    "manual_seed_all": _nothing,
}
