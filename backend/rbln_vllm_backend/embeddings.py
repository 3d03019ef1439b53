"""The input ``embedding_request`` of NVIDIA's backend: a prompt whose vector is wanted instead of text."""

from __future__ import annotations

from typing import Any

from rbln_vllm_backend import inputs
from rbln_vllm_backend.engine import Embedding, Prompt, TokenIds
from rbln_vllm_backend.errors import InvalidRequest, shown
from rbln_vllm_backend.inputs import Tensors
from rbln_vllm_backend.values import Integer, Text

NAME = "embedding_request"
# What else such a request may have: the outputs that an embedding has, and what every request may say.
_BESIDE = frozenset(
    {
        NAME,
        "text_input",
        "return_num_input_tokens",
        "return_num_output_tokens",
        "return_totals",
        "priority",
        "timeout_s",
    }
)
_DIMENSIONS = Integer(minimum=1, maximum=2**31 - 1)


def read(tensors: Tensors) -> tuple[Prompt, Embedding]:
    """The prompt and what is wanted of it.

    Raises:
        InvalidRequest: with the input's or key's name.
    """
    document = inputs.document(tensors, NAME, dict, "a JSON object with input")
    assert document is not None
    _require_keys(NAME, document, {"input", "pooling_params"})
    prompt = _prompt(document.get("input"))
    _require_nothing_else(tensors, prompt)
    return prompt, Embedding(_dimensions(document.get("pooling_params")))


def _prompt(given: object) -> Prompt:
    if isinstance(given, list) and given and all(type(token) is int for token in given):
        return TokenIds(given)
    try:
        return Text().typed(given)
    except ValueError:
        rule = "must be a text that is not empty, or a list of token ids"
        raise InvalidRequest.about(f"{NAME}.input", given, rule) from None


def _dimensions(params: object) -> int | None:
    """As a number, or as NVIDIA's backend has it: a list of one."""
    name = f"{NAME}.pooling_params"
    if params is None:
        return None
    if not isinstance(params, dict):
        raise InvalidRequest.about(name, params, "must be a JSON object")
    _require_keys(name, params, {"dimensions"})
    given: Any = params.get("dimensions")
    if given is None:
        return None
    try:
        return _DIMENSIONS.typed(given[0] if isinstance(given, list) and len(given) == 1 else given)
    except ValueError:
        raise InvalidRequest.about(f"{name}.dimensions", given, f"must be {_DIMENSIONS.words}") from None


def _require_keys(name: str, document: dict[str, Any], known: set[str]) -> None:
    for key in document.keys() - known:
        raise InvalidRequest(f"{name}: {shown(key)} is not one of its keys; known: {', '.join(sorted(known))}.")


def _require_nothing_else(tensors: Tensors, prompt: Prompt) -> None:
    for name in tensors:
        if name not in _BESIDE and any(tensors[name]):
            raise InvalidRequest(f"{name}: not with {NAME}, whose answer is one vector.")
    # NVIDIA's backend requires text_input, so its clients send an empty one.
    if inputs.text(tensors, "text_input") not in (None, "", prompt):
        raise InvalidRequest(f"text_input: the prompt of an embedding is the key input of {NAME}.")
