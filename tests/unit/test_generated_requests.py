"""The request parser under generated requests: it refuses by name, or hands on what can't hurt an engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given

from generated_requests import many, parameters, tensors
from rbln_vllm_backend import request, sampling
from rbln_vllm_backend.engine import Chat
from rbln_vllm_backend.errors import InvalidRequest, NotFound, Unsupported, shown
from rbln_vllm_backend.terms import Terms

TERMS = [Terms(), Terms(speculative_method="ngram", by_priority=True, adapters=("french",))]


@many(400)
@given(tensors=tensors(), parameters=parameters)
def test_any_request_is_refused_by_name_or_can_go_to_an_engine(
    tensors: dict[str, list[object]], parameters: dict[str, object]
) -> None:
    for terms in TERMS:
        try:
            read = request.read(tensors, parameters, "7", terms)
        except (InvalidRequest, NotFound, Unsupported) as error:
            message = str(error)
            message.encode()  # the server sends it as UTF-8
            assert any(
                message.startswith((name, shown(name)))
                for name in (*tensors, *named(tensors, parameters), "text_input")
            )
        else:
            require_harmless(read)


def named(tensors: dict[str, list[object]], parameters: dict[str, object]) -> Iterator[str]:
    yield from parameters
    for document in tensors.get("sampling_parameters", ()):
        try:
            decoded = msgspec.json.decode(document)  # type: ignore[arg-type]
        except (msgspec.DecodeError, RecursionError, TypeError, UnicodeDecodeError):
            continue
        if isinstance(decoded, dict):
            yield from decoded


def require_harmless(read: request.Request) -> None:
    """What an engine gets: known names, finite numbers, text that UTF-8 carries, integers that 64 bits hold."""
    assert read.sampling.keys() <= sampling.PARAMETERS.keys()
    for value in leaves(dict(read.sampling)):
        assert not isinstance(value, float) or math.isfinite(value)
    # The encoding in which vLLM's frontend hands a request to its core.
    msgspec.msgpack.encode(read.sampling)
    assert isinstance(read.stream, bool)
    assert read.timeout_s is None or 0 < read.timeout_s < math.inf
    if isinstance(read.prompt, str):
        read.prompt.encode()
    elif isinstance(read.prompt, Chat):
        msgspec.json.encode(read.prompt.messages)


def leaves(value: Any) -> Iterator[object]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value
