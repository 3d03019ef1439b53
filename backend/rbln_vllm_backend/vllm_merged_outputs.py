"""Keeps a request's acceptance figures where vLLM 0.30 merges its outputs.

A reader that is behind gets several steps as one output. 0.32 hands the figures of the last one on; 0.30 keeps those of
the first, which has none yet.
"""

from __future__ import annotations

from typing import Any


def repair() -> bool:
    """Wraps vLLM's merge where it forgets the figures; returns whether it did (or had done so before)."""
    from vllm.outputs import RequestOutput

    if hasattr(RequestOutput.add, "forgetful"):
        return True
    if "spec_decode_metrics" in RequestOutput.add.__code__.co_names:
        return False
    RequestOutput.add = _with_figures(RequestOutput.add)
    return True


def _with_figures(forgetful: Any) -> Any:
    """``RequestOutput.add``, which merges a later output of the same request into this one."""

    def add(self: Any, next_output: Any, aggregate: bool) -> None:
        forgetful(self, next_output, aggregate)
        for later in next_output.outputs:
            if later.spec_decode_metrics is not None:
                for completion in self.outputs:
                    if completion.index == later.index:
                        completion.spec_decode_metrics = later.spec_decode_metrics

    add.forgetful = forgetful  # type: ignore[attr-defined]
    return add
