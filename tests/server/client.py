"""Clients for the tests: one streamed answer over gRPC, one unary answer over HTTP."""

from __future__ import annotations

import json
import queue
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from tritonclient import grpc

from running_server import RunningServer

ANSWER_DEADLINE_S = 120.0


class Address(Protocol):
    """A server that speaks gRPC at host:port."""

    @property
    def grpc(self) -> str: ...


@dataclass
class Answer:
    """What one stream gave: its pieces, the numbers of its last response, its error, how many FINALs."""

    pieces: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    request_ids: set[str] = field(default_factory=set)
    error: str | None = None
    finals: int = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def inputs(prompt: str | None, sampling: dict[str, Any] | str, stream: bool, *switches: str) -> list[Any]:
    """The input tensors of a request."""
    document = sampling if isinstance(sampling, str) else json.dumps(sampling)
    texts = {"text_input": prompt, "sampling_parameters": document}
    tensors = []
    for name, text in texts.items():
        if text is not None:
            tensors.append(grpc.InferInput(name, [1], "BYTES"))
            tensors[-1].set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
    for name in ("return_num_output_tokens", *switches, *(["stream"] if stream else [])):
        tensors.append(grpc.InferInput(name, [1], "BOOL"))
        tensors[-1].set_data_from_numpy(np.array([True]))
    return tensors


class Stream:
    """One gRPC stream with one request on it; ``answer`` waits for its end."""

    def __init__(
        self,
        server: Address,
        prompt: str | None,
        sampling: dict[str, Any] | str,
        model: str = "llm",
        switches: Sequence[str] = (),
        stream: bool = True,
        request_id: str = "",
    ) -> None:
        self._arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self._client = grpc.InferenceServerClient(server.grpc)
        self._client.start_stream(lambda result, error: self._arrived.put((result, error)))
        tensors = inputs(prompt, sampling, stream, *switches)
        self._client.async_stream_infer(model, tensors, request_id=request_id, enable_empty_final_response=True)
        self._answer = Answer()

    def first_piece(self) -> None:
        """Waits for the first response that has text."""
        while not self._answer.pieces and self._answer.error is None:
            self._take()

    def answer(self) -> Answer:
        """Everything up to the FINAL or the error."""
        while not self._answer.finals and self._answer.error is None:
            self._take()
        self._client.stop_stream()
        self._client.close()
        while not self._arrived.empty():  # what came behind the end counts too
            self._take()
        return self._answer

    def cancel(self) -> None:
        """Hangs up, as a client that goes away."""
        self._client.stop_stream(cancel_requests=True)
        self._client.close()

    def _take(self) -> None:
        result, error = self._arrived.get(timeout=ANSWER_DEADLINE_S)
        if error is not None:
            self._answer.error = error.message()
            return
        response = result.get_response()
        self._answer.finals += response.parameters["triton_final_response"].bool_param
        self._answer.request_ids.add(response.id)
        text = result.as_numpy("text_output")
        if text is None:
            return
        self._answer.pieces.append(text[0].decode())
        self._answer.tokens.append(int(result.as_numpy("num_output_tokens")[0]))
        self._answer.last = {tensor.name: result.as_numpy(tensor.name).tolist() for tensor in response.outputs}


# numpy's types of the inputs that are no text.
_KINDS = {"input_ids": ("INT64", np.int64), "priority": ("INT32", np.int32), "timeout_s": ("FP32", np.float32)}


def tensor(name: str, value: Any) -> Any:
    """An input tensor; text, switches and the protocol's numbers by their types, a list as several elements."""
    elements = value if isinstance(value, list) else [value]
    kind, dtype = _KINDS.get(name, ("BYTES", np.object_))
    if isinstance(value, bool):
        kind, dtype = "BOOL", np.bool_
    if kind == "BYTES":
        elements = [one if isinstance(one, bytes) else str(one).encode() for one in elements]
    made = grpc.InferInput(name, [len(elements)], kind)
    made.set_data_from_numpy(np.array(elements, dtype=dtype))
    return made


def exchange(
    server: RunningServer,
    tensors: Sequence[Any],
    model: str = "llm",
    parameters: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[list[dict[str, Any]], str | None]:
    """Every response of one request as lists by name, the last with FINAL, and the error's text if it ended in one."""
    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    responses: list[dict[str, Any]] = []
    with grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer(model, list(tensors), parameters=parameters, enable_empty_final_response=True, **more)
        while True:
            result, error = arrived.get(timeout=ANSWER_DEADLINE_S)
            if error is not None:
                return responses, error.message()
            response = result.get_response()
            responses.append({one.name: result.as_numpy(one.name).tolist() for one in response.outputs})
            if response.parameters["triton_final_response"].bool_param:
                return responses, None


def asked(server: RunningServer, model: str = "llm", **inputs: Any) -> tuple[list[dict[str, Any]], str | None]:
    """``exchange`` with inputs by name; ``sampling_parameters`` may be an object."""
    document = inputs.get("sampling_parameters")
    if isinstance(document, dict):
        inputs["sampling_parameters"] = json.dumps(document)
    return exchange(server, [tensor(name, value) for name, value in inputs.items()], model)


def ask(server: RunningServer, prompt: str | None, sampling: dict[str, Any] | str, **more: Any) -> Answer:
    """One streamed answer, whole."""
    return Stream(server, prompt, sampling, **more).answer()


def ask_all(server: RunningServer, prompts: Sequence[str], sampling: dict[str, Any], **more: Any) -> list[Answer]:
    """Several streams at once, each on a connection of its own."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: ask(server, prompt, sampling, **more), prompts))


def generate(server: RunningServer, model: str = "llm", **fields: Any) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of POST generate."""
    return post(server, f"models/{model}/generate", fields)


def post(
    server: RunningServer, path: str, document: dict[str, Any] | None = None, deadline_s: float = ANSWER_DEADLINE_S
) -> tuple[int, dict[str, Any]]:
    """HTTP status and JSON body of a POST to the server's v2 API."""
    data = json.dumps(document or {}).encode()
    request = urllib.request.Request(f"http://{server.http}/v2/{path}", data=data, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=deadline_s) as response:
            body = response.read()
            return response.status, json.loads(body) if body else {}
    except urllib.error.HTTPError as error:
        body = error.read()
        return error.code, json.loads(body) if body else {}
