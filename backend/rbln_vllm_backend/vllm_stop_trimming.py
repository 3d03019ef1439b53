"""Ends a sequence with the token that completes its stop string, on vLLM 0.30.

With speculation one engine step gives several tokens, and the stop string may be complete before the last of them. vLLM
0.32 then drops the rest; 0.30 cuts the text alone, and keeps the surplus in the token ids, the logprobs and the counts.
Here the detokenizer is given such a step token by token, as if each were a step of its own, and what it didn't take is
removed from the engine's output. Once for each process that reads the engine's output, which is ours.
"""

from __future__ import annotations

from typing import Any


def install() -> bool:
    """Replaces two methods where vLLM lacks the trimming; returns whether it did (or had done so before)."""
    from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer
    from vllm.v1.engine.logprobs import LogprobsProcessor
    from vllm.v1.engine.output_processor import OutputProcessor

    if hasattr(OutputProcessor, "_trim_surplus_tokens"):
        return False
    if not hasattr(BaseIncrementalDetokenizer.update, "whole_step"):
        BaseIncrementalDetokenizer.update = _by_token(BaseIncrementalDetokenizer.update)
        LogprobsProcessor.update_from_output = _of_kept_tokens(LogprobsProcessor.update_from_output)
    return True


def _by_token(whole_step: Any) -> Any:
    """``BaseIncrementalDetokenizer.update``: takes new token ids, returns the stop string that they complete."""

    def update(self: Any, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        if not self.stop or len(new_token_ids) < 2:
            matched: str | None = whole_step(self, new_token_ids, stop_terminated)
            return matched
        last = len(new_token_ids) - 1
        for position, token in enumerate(new_token_ids):
            matched = whole_step(self, [token], stop_terminated and position == last)
            if matched is not None:
                del new_token_ids[position + 1 :]  # the list of the engine's output: what is sent is what was taken
                return matched
        return None

    update.whole_step = whole_step  # type: ignore[attr-defined]
    return update


def _of_kept_tokens(update_from_output: Any) -> Any:
    """``LogprobsProcessor.update_from_output``: it follows the detokenizer, and must see no more than that kept."""

    def update(self: Any, output: Any) -> None:
        kept = len(output.new_token_ids)
        if output.new_logprobs is not None and len(output.new_logprobs.logprobs) > kept:
            output.new_logprobs = output.new_logprobs.slice_request(0, kept)
        update_from_output(self, output)

    return update
