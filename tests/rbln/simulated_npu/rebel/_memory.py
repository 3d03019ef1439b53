"""The NPU's memory: one real storage for each KV cache, which the plugin holds as a "meta" tensor.

Without it an operator that is given a "meta" tensor would silently run its shape-only kernel, and the text be garbage.
"""

from dataclasses import dataclass

import torch


@dataclass
class Cache:
    """One layer's KV cache: the plugin's tensor, kept alive since its storage's address is the key, and the bytes."""

    name: str
    meta: torch.Tensor  # [blocks, key or value, KV heads, 1, block size, head size]
    bytes: torch.Tensor


_caches: dict[int, Cache] = {}


def allocate(tensor, name):
    """Real, zeroed storage for a "meta" tensor, found again by any view of the same storage."""
    size = tensor.untyped_storage().nbytes()
    _caches[_key(tensor)] = Cache(name, tensor, torch.zeros(size, dtype=torch.uint8))


def on_device(tensor):
    """The tensor as the device sees it: a view of the real storage, of the same shape and strides."""
    cache = _caches.get(_key(tensor))
    if cache is None:
        raise RuntimeError(f"a graph reads a tensor of shape {tuple(tensor.shape)} that has no memory on the device")
    real = torch.empty(0, dtype=tensor.dtype)
    real.set_(cache.bytes.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    return real


def copy_tokens(source, destination, count):
    """Copies the first ``count`` tokens of one block to another, in every layer (sub-block prefix caching)."""
    for cache in _caches.values():
        layer = on_device(cache.meta)
        layer[destination, ..., :count, :] = layer[source, ..., :count, :]


def is_last(tensor):
    """Whether this device tensor is the cache of the last layer, which is the draft model's when there is one."""
    last = next(reversed(_caches.values()), None)
    return last is not None and last.bytes.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def _key(tensor):
    return tensor.untyped_storage()._cdata
