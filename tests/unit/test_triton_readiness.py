"""What the refusal of a call says of the model's readiness; the texts are those of Triton 24.10."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

INSIDE_TRITON = Path(__file__).parents[1] / "fakes" / "inside_triton"


@pytest.mark.parametrize(
    ("refusal", "served"),
    [
        ("unexpected inference output '…' for model 'llm_unary'", True),
        ("Model llm is using the decoupled. The current BLS request call doesn't support models using …", True),
        ("Failed for execute the inference request. Model 'llm' is not ready.", False),
        ("Server not ready", False),
        ("a sentence of another version", True),
        (None, True),
        (Exception("BLS is only supported during the 'execute' function."), True),
    ],
    ids=["ready, unary", "ready", "unloading", "stopping", "unknown", "answered", "too late"],
)
def test_only_a_refusal_for_want_of_readiness_says_that_the_model_is_going(
    monkeypatch: pytest.MonkeyPatch, refusal: str | Exception | None, served: bool
) -> None:
    monkeypatch.syspath_prepend(str(INSIDE_TRITON))
    import triton_python_backend_utils as pb

    from rbln_vllm_backend.triton_readiness import is_served

    answer: Any = refusal
    if not isinstance(refusal, Exception):
        answer = pb.InferenceResponse(error=pb.TritonError(refusal) if refusal else None)
    monkeypatch.setattr(pb.InferenceRequest, "answers", {("llm", 3): answer})
    assert is_served("llm", 3) is served
