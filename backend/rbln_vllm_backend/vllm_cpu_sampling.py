"""Mends sampling with speculation on vLLM's CPU platform, in the process that samples.

vLLM 0.32 without triton-cpu spreads each request's temperature, top_p and top_k over its draft tokens by a function
that writes into a copy and drops it (``vllm.utils.cpu_triton_utils._expand_kernel_impl``): the values stay
uninitialised, and one request that samples spoils the text of all its neighbours. This package's entry point in
``vllm.general_plugins`` puts a right one in its place; ``tests/engine/test_cpu_sampling.py`` holds both the place of
the fault and the cure.
"""

from __future__ import annotations

from typing import Any

from rbln_vllm_backend import orphan_guard

PLUGIN_NAME = "rbln_vllm_backend_cpu_sampling"
_FAULTY = "_expand_kernel_impl"


def repair() -> None:
    """Replaces the faulty function, in processes of this backend only; elsewhere, and without it, does nothing."""
    if not orphan_guard.is_armed():
        return
    try:
        from vllm.utils import cpu_triton_utils
    except ImportError:
        return
    if hasattr(cpu_triton_utils, _FAULTY):
        setattr(cpu_triton_utils, _FAULTY, expand)


def expand(output: Any, values: Any, ends: Any, replace_from: Any, replace_to: Any, *_: Any, **__: Any) -> None:
    """Spreads one value a request over its tokens, in place.

    Args:
        output: tensor [tokens], written whole.
        values: tensor [requests]; ``replace_from`` becomes ``replace_to``.
        ends: tensor [requests], the running sum of each request's number of tokens.
    """
    counts = ends.diff(prepend=ends.new_zeros(1))
    output.copy_(values.masked_fill(values == replace_from, replace_to).repeat_interleave(counts))
