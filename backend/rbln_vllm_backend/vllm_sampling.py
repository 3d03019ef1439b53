"""Sampling parameters as vLLM's own objects."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rbln_vllm_backend import vllm_constraints
from rbln_vllm_backend.engine import Generation
from rbln_vllm_backend.errors import InvalidRequest
from rbln_vllm_backend.speculation import Speculation

_log = logging.getLogger(__name__)

# Means the likeliest token alone, as any smaller one does, which may be zero in the engine: then no token is left.
_SMALLEST_TOP_P = 1e-6


def defaults(vllm_config: Any, speculation: Speculation | None) -> dict[str, Any]:
    """What holds for a request that doesn't say: as on vLLM's own server, the checkpoint's generation_config."""
    chosen: dict[str, Any] = dict(vllm_config.model_config.get_diff_sampling_param())
    if speculation is not None and chosen.get("min_p"):
        # vLLM refuses the pair for every single request.
        _log.warning(
            "The checkpoint's default min_p = %g is dropped: it isn't possible with speculative decoding.",
            chosen.pop("min_p"),
        )
    return chosen


def params(generation: Generation, default: Mapping[str, Any], max_tokens_cap: int | None, constrainer: str) -> Any:
    """vLLM's ``SamplingParams`` for one request; ``constrainer`` is the library that keeps it to a constraint.

    Raises:
        InvalidRequest: what only vLLM's own checks, or that library, know.
    """
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    chosen = {"max_tokens": None, **default, **generation.sampling}
    if max_tokens_cap is not None:
        chosen["max_tokens"] = min(chosen["max_tokens"] or max_tokens_cap, max_tokens_cap)
    if chosen.get("top_p") is not None:
        chosen["top_p"] = max(chosen["top_p"], _SMALLEST_TOP_P)
    if chosen.get("structured_outputs") is not None:
        chosen["structured_outputs"] = vllm_constraints.prepared(chosen["structured_outputs"], constrainer)
    for name, kind in _objects().items():
        if chosen.get(name) is not None:
            chosen[name] = _built(kind, name, chosen[name])
    output_kind = RequestOutputKind.DELTA if generation.stream else RequestOutputKind.FINAL_ONLY
    return SamplingParams(**chosen, output_kind=output_kind)


def _objects() -> dict[str, Any]:
    from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams

    return {"structured_outputs": StructuredOutputsParams, "repetition_detection": RepetitionDetectionParams}


def _built(kind: Any, name: str, given: Mapping[str, Any]) -> Any:
    from vllm.exceptions import VLLMClientError

    try:
        return kind(**given)
    except (TypeError, ValueError, VLLMClientError) as error:
        raise InvalidRequest.about(name, given, str(error).strip()) from error
