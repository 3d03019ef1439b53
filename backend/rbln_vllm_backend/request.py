"""One request's options, strictly typed, in a frozen object."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rbln_vllm_backend import sampling
from rbln_vllm_backend.errors import InvalidRequest, Unsupported
from rbln_vllm_backend.wire import RETURN_SWITCHES

_RESERVED = {
    "image": "images are not supported yet",
    "embedding_request": "embeddings are not supported yet",
}


@dataclass(frozen=True)
class Request:
    """What a client asked for.

    ``asked`` holds the names of the ``return_…`` inputs that are true. ``prefix`` is what a unary answer starts with.
    ``client_id`` is Triton's request id, which the server echoes by itself; it need not be unique.
    """

    prompt: str
    stream: bool
    sampling: Mapping[str, Any]
    asked: frozenset[str]
    prefix: str
    client_id: str

    @property
    def sequences(self) -> int:
        """How many texts the answer has."""
        return int(self.sampling.get("n", 1))


def read(
    tensors: Mapping[str, Sequence[object]],
    parameters: Mapping[str, object],
    client_id: str,
    ignored_parameters: Collection[str],
) -> Request:
    """A request from its input tensors (name -> elements: bytes or bool) and its request parameters.

    Raises:
        InvalidRequest, Unsupported: with the input's or parameter's name.
    """
    for name, reason in _RESERVED.items():
        if name in tensors:
            raise Unsupported(f"{name}: {reason}.")
    prompt = _text(tensors, "text_input")
    if not prompt:
        raise InvalidRequest("text_input: the prompt is missing or empty.")
    stream = _switch(tensors, "stream") or False
    chosen = sampling.read(_text(tensors, "sampling_parameters"), parameters, ignored_parameters)
    asked = frozenset(name for name in RETURN_SWITCHES if _switch(tensors, name))
    return Request(prompt, stream, chosen, asked, _prefix(tensors, stream, prompt), client_id)


def _prefix(tensors: Mapping[str, Sequence[object]], stream: bool, prompt: str) -> str:
    excluded = _switch(tensors, "exclude_input_in_output")
    if stream and excluded is False:
        raise InvalidRequest.about("exclude_input_in_output", False, "a stream never repeats its input")
    return "" if stream or excluded else prompt


def _one(tensors: Mapping[str, Sequence[object]], name: str) -> object | None:
    if name not in tensors:
        return None
    elements = tensors[name]
    if len(elements) != 1:
        raise InvalidRequest(f"{name}: must hold one element, and holds {len(elements)}.")
    return elements[0]


def _text(tensors: Mapping[str, Sequence[object]], name: str) -> str | None:
    value = _one(tensors, name)
    if value is None:
        return None
    if not isinstance(value, bytes):
        raise InvalidRequest.about(name, value, "must be text")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest.about(name, value, f"must be UTF-8 ({error.reason} at byte {error.start})") from None


def _switch(tensors: Mapping[str, Sequence[object]], name: str) -> bool | None:
    value = _one(tensors, name)
    if value is None or isinstance(value, bool):
        return value
    raise InvalidRequest.about(name, value, "must be true or false")
