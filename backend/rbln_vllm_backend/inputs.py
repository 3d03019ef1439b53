"""One input tensor's elements as one typed value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rbln_vllm_backend import strict_json
from rbln_vllm_backend.errors import InvalidRequest
from rbln_vllm_backend.values import Rule

Tensors = Mapping[str, Sequence[object]]  # name -> elements: bytes, bool, int or float


def one(tensors: Tensors, name: str) -> object | None:
    """The only element, None when the tensor wasn't sent; raises InvalidRequest."""
    if name not in tensors:
        return None
    elements = tensors[name]
    if len(elements) != 1:
        raise InvalidRequest(f"{name}: must hold one element, and holds {len(elements)}.")
    return elements[0]


def text(tensors: Tensors, name: str) -> str | None:
    """The element as text; raises InvalidRequest with the place where it isn't UTF-8."""
    value = one(tensors, name)
    if value is None:
        return None
    if not isinstance(value, bytes):
        raise InvalidRequest.about(name, value, "must be text")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest.about(name, value, f"must be UTF-8 ({error.reason} at byte {error.start})") from None


def switch(tensors: Tensors, name: str) -> bool | None:
    """The element as true or false; raises InvalidRequest."""
    value = one(tensors, name)
    if value is None or isinstance(value, bool):
        return value
    raise InvalidRequest.about(name, value, "must be true or false")


def value(tensors: Tensors, name: str, rule: Rule) -> Any | None:
    """The element as the rule has it; raises InvalidRequest."""
    element = one(tensors, name)
    if element is None:
        return None
    try:
        return rule.typed(element)
    except ValueError:
        raise InvalidRequest.about(name, element, f"must be {rule.words}") from None


def document(tensors: Tensors, name: str, kind: type, words: str) -> Any | None:
    """The element as a JSON document of one kind; raises InvalidRequest with the place where it isn't JSON."""
    written = text(tensors, name)
    if written is None:
        return None
    try:
        decoded = strict_json.decode(written)
    except ValueError as error:
        raise InvalidRequest.about(name, written, f"not valid JSON ({error})") from None
    if not isinstance(decoded, kind):
        raise InvalidRequest.about(name, written, f"must be {words}")
    return decoded
