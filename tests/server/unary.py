"""Clients of the unary model: infer over HTTP, ModelInfer over gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from tritonclient import grpc, http

from running_server import RunningServer

from .client import ANSWER_DEADLINE_S


def inputs(kind: Any, texts: dict[str, str], switches: Sequence[str] = ()) -> list[Any]:
    """Input tensors of ``kind``, the module of a client."""
    tensors = []
    for name, text in texts.items():
        tensors.append(kind.InferInput(name, [1], "BYTES"))
        tensors[-1].set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
    for name in switches:
        tensors.append(kind.InferInput(name, [1], "BOOL"))
        tensors[-1].set_data_from_numpy(np.array([True]))
    return tensors


def asking(prompt: str, sampling: dict[str, Any]) -> dict[str, str]:
    """The text inputs of a request."""
    return {"text_input": prompt, "sampling_parameters": json.dumps(sampling)}


@contextmanager
def http_client(server: RunningServer, at_once: int = 1) -> Iterator[Any]:
    """A client that closes its connections: the server waits for idle ones when it stops."""
    client = http.InferenceServerClient(
        server.http, concurrency=at_once, network_timeout=ANSWER_DEADLINE_S, connection_timeout=ANSWER_DEADLINE_S
    )
    with client:
        yield client


def infer_http(
    server: RunningServer, model: str, texts: dict[str, str], switches: Sequence[str] = (), **more: Any
) -> dict[str, list[Any]]:
    """The output tensors of one infer() over HTTP; raises InferenceServerException."""
    with http_client(server) as client:
        result = client.infer(model, inputs(http, texts, switches), **more)
        return {output["name"]: result.as_numpy(output["name"]).tolist() for output in result.get_response()["outputs"]}


def infer_grpc(
    server: RunningServer, model: str, texts: dict[str, str], switches: Sequence[str] = (), **more: Any
) -> dict[str, list[Any]]:
    """The output tensors of one ModelInfer over gRPC; raises InferenceServerException."""
    with grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer(model, inputs(grpc, texts, switches), **more)
        return {output.name: result.as_numpy(output.name).tolist() for output in result.get_response().outputs}
