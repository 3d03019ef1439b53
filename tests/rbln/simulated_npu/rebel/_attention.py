"""The paged attention kernels of the vllm implementation, without their non-causal and sliding-window kinds.

One kernel writes the new keys and values into the cache and attends to what is there up to each query's own position.
Both kinds do the same here: "flash" walks the blocks on the device, the other has one block for the whole context.
"""

import math

import torch

from rebel import _faults

_SHAPES = "Tensor q, Tensor k, Tensor v, Tensor(a!) kv_cache"
_REST = "Tensor block_tables, Tensor dummy, Tensor? sinks=None"
_QUANTIZED = "Tensor? k_scale=None, Tensor? v_scale=None, ScalarType? cache_dtype=None"


def register():
    """Defines the operators with a CPU kernel and a shape-only one for tracing."""
    for phase in ("prefill", "decode"):
        _define(f"causal_attention_naive_{phase}", f"({_SHAPES}, Tensor start, Tensor scale, {_REST})", _causal)
        _define(
            f"flash_causal_attention_naive_{phase}",
            f"({_SHAPES}, Tensor scale, Tensor start, {_REST}, {_QUANTIZED})",
            _flash_causal,
        )


def _define(name, signature, kernel):
    operator = f"rbln_custom_ops::{name}"
    torch.library.define(operator, f"{signature} -> Tensor")
    torch.library.impl(operator, "CPU", kernel)
    torch.library.register_fake(operator, lambda q, *_: torch.empty_like(q))


def _causal(q, k, v, kv_cache, start, scale, block_tables, dummy, sinks=None):
    return _attend(q, k, v, kv_cache, scale, start, block_tables, sinks)


def _flash_causal(
    q, k, v, kv_cache, scale, start, block_tables, dummy, sinks=None, k_scale=None, v_scale=None, cache_dtype=None
):
    if cache_dtype is not None:
        raise NotImplementedError("the simulated NPU has no fp8 KV cache")
    return _attend(q, k, v, kv_cache, scale, start, block_tables, sinks)


def _attend(q, k, v, kv_cache, scale, start, block_tables, sinks):
    """Writes the new tokens, then attends.

    Args:
        q: [requests, KV heads, queries of a KV head, new tokens, head size]
        k, v: [requests, KV heads, 1, new tokens, head size]
        kv_cache: [blocks, 2 (key, value), KV heads, 1, block size, head size], written in place
        scale: one number
        start: [requests, 1], the position of each request's first new token
        block_tables: [requests, blocks of a request], or [blocks of the request] for a prefill
    """
    if sinks is not None:
        raise NotImplementedError("the simulated NPU has no attention sinks")
    requests, _, _, new, _ = q.shape
    block_size = kv_cache.shape[-2]
    out = torch.zeros_like(q)
    # A batch is padded to the size it was compiled for; such rows name the null block, which is block 0.
    live = block_tables.reshape(requests, -1)[:, 0].nonzero()[:, 0]
    if not live.numel():
        return out
    tables = _faults.as_read(block_tables, kv_cache, new).reshape(requests, -1)[live].long()
    positions = start[live].long() + torch.arange(new)
    if _faults.keeps_kv():
        _write(k[live], v[live], kv_cache, positions, tables)
    seen = min(int(positions.max()) + 1, tables.shape[1] * block_size)
    cached = kv_cache[tables[:, : math.ceil(seen / block_size)]]
    # [requests, blocks, 2, heads, 1, block size, head size] -> [2, requests, heads, 1, tokens, head size]
    keys, values = cached.permute(2, 0, 3, 4, 1, 5, 6).flatten(4, 5)
    scores = torch.matmul(q[live], keys.transpose(-1, -2)) * scale
    unseen = torch.arange(keys.shape[-2]) > positions[:, None, None, :, None]
    out[live] = torch.matmul(scores.masked_fill(unseen, -math.inf).softmax(-1), values)
    return out


def _write(k, v, kv_cache, positions, tables):
    """Puts the new keys and values [requests, heads, 1, new tokens, head size] in their places.

    Tokens beyond the end of a request's blocks are padding, and dropped.
    """
    block_size = kv_cache.shape[-2]
    requests, tokens = (positions < tables.shape[1] * block_size).nonzero(as_tuple=True)
    places = positions[requests, tokens]
    blocks, offsets = tables[requests, places // block_size], places % block_size
    kv_cache[blocks, 0, :, 0, offsets] = k[requests, :, 0, tokens]
    kv_cache[blocks, 1, :, 0, offsets] = v[requests, :, 0, tokens]
