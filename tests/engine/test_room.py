"""R12: a context that the KV cache can't hold is refused at load; a prompt of that length would wait for ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rbln_vllm_backend.errors import EngineStartError
from rbln_vllm_backend.vllm_preconditions import require_room


def started(num_blocks: int | None, **model: Any) -> Any:
    """vLLM's configuration after the start, as far as it matters: blocks of 16 tokens, a context of 128."""
    plain = {"max_model_len": 128, "get_sliding_window": lambda: None, "is_hybrid": False, "is_attention_free": False}
    return SimpleNamespace(
        model_config=SimpleNamespace(**{**plain, **model}),
        cache_config=SimpleNamespace(num_gpu_blocks=num_blocks, block_size=16),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
    )


def test_a_context_that_the_cache_cannot_hold_is_refused_with_the_remedy() -> None:
    with pytest.raises(EngineStartError) as caught:
        require_room(started(7))
    assert str(caught.value) == (
        "The KV cache has room for 112 tokens, and the context (max_model_len) is 128; "
        "set max_model_len to 112 at most, or give the cache more memory."
    )


@pytest.mark.parametrize(
    "config",
    [started(8), started(None), started(7, get_sliding_window=lambda: 64), started(7, is_hybrid=True)],
    ids=["just enough", "unknown", "sliding window", "hybrid"],
)
def test_others_are_not(config: Any) -> None:
    require_room(config)
