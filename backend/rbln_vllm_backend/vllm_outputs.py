"""vLLM's outputs as steps of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rbln_vllm_backend.engine import Generation, Piece, SpeculationCounts, Step, TokenLogprob
from rbln_vllm_backend.errors import InvalidRequest, RequestError

_LOWEST_LOGPROB = -9999.0  # JSON has no -Infinity; vLLM's own server writes the same


def step(output: Any, speculates: bool) -> Step:
    """What one output of the engine brought; ``speculates`` says whether the model speculates at all."""
    pieces = tuple(_piece(completion, speculates) for completion in output.outputs)
    return Step(pieces, len(output.prompt_token_ids or ()), output.finished, output.num_cached_tokens)


def _piece(completion: Any, speculates: bool) -> Piece:
    reason = completion.finish_reason
    return Piece(
        index=completion.index,
        text=completion.text,
        num_tokens=len(completion.token_ids),
        finish_reason=reason,
        cumulative_logprob=completion.cumulative_logprob,
        logprobs=_logprobs(completion.logprobs),
        speculation=_counts(completion, speculates) if reason else None,
        stop_reason=completion.stop_reason,
        token_ids=completion.token_ids,
    )


def _counts(completion: Any, speculates: bool) -> SpeculationCounts | None:
    """What vLLM counted for the sequence; it has no numbers when the engine core didn't end the request itself."""
    if not speculates:
        return SpeculationCounts(configured=False)
    metrics = completion.spec_decode_metrics
    if metrics is None:
        return None
    numbers = metrics.to_dict()
    return SpeculationCounts(
        numbers["num_spec_steps"], numbers["num_draft_tokens"], numbers["num_accepted_draft_tokens"]
    )


def vector(output: Any) -> Step:
    """An embedding as one step, whose text is a JSON list of numbers."""
    from vllm.outputs import EmbeddingRequestOutput

    vector = EmbeddingRequestOutput.from_base(output).outputs.embedding
    text = msgspec.json.encode(vector).decode()
    return Step((Piece(0, text, 0),), len(output.prompt_token_ids), True)


def require_no_error(output: Any, generation: Generation) -> None:
    """An engine's error or abort is an error reply, never text."""
    reasons = {completion.finish_reason for completion in output.outputs if completion.finish_reason}
    if not reasons:
        return
    constraint = generation.sampling.get("structured_outputs")
    if "error" in reasons and constraint is not None:
        # Some constraints are only compiled in the engine's process, which tells no more than this; nor does it when
        # allowed_token_ids or bad_words exclude every token that the constraint allows.
        rule = "the engine can't compile it, or the other sampling parameters leave nothing that it allows"
        raise InvalidRequest.about("structured_outputs", constraint, rule)
    if reasons & {"abort", "error"}:
        raise RequestError(f"The engine ended the request ({', '.join(sorted(reasons))}).")


def _logprobs(positions: Sequence[Mapping[int, Any]] | None) -> tuple[Mapping[int, TokenLogprob], ...] | None:
    if positions is None:
        return None
    return tuple(
        {
            token: TokenLogprob(max(item.logprob, _LOWEST_LOGPROB), item.rank, item.decoded_token)
            for token, item in position.items()
        }
        for position in positions
    )
