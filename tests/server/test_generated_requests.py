"""Generated requests at a live server, with good ones in between: each bad one is named, each good one gets its text.

100 of them in CI; `make fuzz` throws 2,000 others in every run.
"""

from __future__ import annotations

import json
import queue
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient import grpc

from generated_requests import many, parameters, tensors
from rbln_vllm_backend import request
from rbln_vllm_backend.errors import RequestError
from rbln_vllm_backend.terms import Terms
from rbln_vllm_backend.wire import INPUTS
from running_server import RunningServer

from .client import generate
from .test_lifecycle import shared_memory

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True}
GOOD_EVERY = 10
MOST_TOKENS = 4
KINDS: dict[str, tuple[str, Any]] = {
    "TYPE_STRING": ("BYTES", np.object_),
    "TYPE_BOOL": ("BOOL", np.bool_),
    "TYPE_INT64": ("INT64", np.int64),
    "TYPE_INT32": ("INT32", np.int32),
    "TYPE_FP32": ("FP32", np.float32),
}
TYPES = {tensor.name: KINDS[tensor.data_type] for tensor in INPUTS}
MATCHING: dict[Any, st.SearchStrategy[list[object]]] = {
    np.int64: st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    np.int32: st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2),
    np.float32: st.lists(st.floats(width=32), max_size=2),
    np.bool_: st.lists(st.booleans(), max_size=2),
    np.object_: st.lists(st.binary(max_size=12), max_size=2),
}
# Of the right type, since Triton itself refuses the others; of any size and value.
odd = st.sampled_from(sorted(TYPES)).flatmap(
    lambda name: MATCHING[TYPES[name][1]].map(lambda elements: {name: elements})
)


@pytest.fixture(scope="module")
def send(server: RunningServer) -> Callable[..., str | None]:
    """Sends one request over a gRPC stream; the error's text, None if it was answered."""

    def one(given: dict[str, list[object]], scalars: dict[str, object]) -> str | None:
        arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
        built = []
        for name, elements in given.items():
            kind, dtype = TYPES[name]
            built.append(grpc.InferInput(name, [len(elements)], kind))
            built[-1].set_data_from_numpy(np.array(elements, dtype=dtype))
        with grpc.InferenceServerClient(server.grpc) as client:
            client.start_stream(lambda result, error: arrived.put((result, error)))
            client.async_stream_infer("plain", built, parameters=scalars, enable_empty_final_response=True)
            while True:
                result, error = arrived.get(timeout=120)
                if error is not None:
                    return str(error.message())
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return None

    return one


def few_tokens(given: dict[str, list[object]]) -> dict[str, list[object]]:
    """The same request with little to write, so that thousands are answered soon."""
    documents = given.get("sampling_parameters")
    document = json.loads(documents[0]) if documents else {}  # type: ignore[arg-type]
    document |= {"max_tokens": MOST_TOKENS, "min_tokens": 0, "n": 1}
    return {**given, "sampling_parameters": [json.dumps(document).encode()]}


def refusal(given: dict[str, list[object]], scalars: dict[str, object]) -> str | None:
    """What the parser says to it here, None if it is good; of a cancellation the input that the server then names."""
    try:
        if request.cancellation(given) is not None:
            return "cancel_request_id"
        request.read(given, scalars, "", Terms())
    except RequestError as error:
        return str(error)
    return None


def sendable(scalars: dict[str, object]) -> dict[str, object]:
    """A request parameter, if there is one that gRPC can carry and that Triton doesn't keep for itself.

    One at most: gRPC hands several on in any order, and the first bad one is refused.
    """
    fitting = {
        name: value
        for name, value in scalars.items()
        if name not in ("", "timeout")
        and is_unicode(name)
        and (type(value) is bool or (type(value) is str and is_unicode(value)) or (type(value) is int and fits(value)))
    }
    return dict(list(fitting.items())[:1])


def is_unicode(text: str) -> bool:
    return text.encode("utf-8", "replace").decode() == text


def fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


def test_generated_requests_leave_the_server_and_their_neighbours_alone(
    server: RunningServer, send: Callable[..., str | None]
) -> None:
    right = generate(server, "plain", text_input="one two three", **GREEDY)[1]["text_output"]
    seen: Counter[str] = Counter()
    sizes_bytes: list[int] = []

    @many(100)
    @given(given=tensors(odd), scalars=parameters.map(sendable))
    def throw(given: dict[str, list[object]], scalars: dict[str, object]) -> None:
        expected = refusal(given, scalars)
        if expected is None:
            send(few_tokens(given), scalars)
        else:
            message = send(given, scalars)
            assert message is not None
            # Triton itself refuses what has another number of elements than the input.
            assert expected[:900] in message or "unexpected shape for input" in message
        seen["refused" if expected else "answered"] += 1
        if seen.total() % GOOD_EVERY == 0:
            assert generate(server, "plain", text_input="one two three", **GREEDY)[1]["text_output"] == right
            sizes_bytes.append(sum(file.stat().st_size for file in shared_memory(server)))

    throw()
    print(dict(seen), sizes_bytes)
    assert seen["answered"] > 0
    assert seen["refused"] > 0
    # The stub's region grows once, to what the largest request needs.
    assert sizes_bytes[-1] == sizes_bytes[len(sizes_bytes) // 2]
