"""The load generator's process: a job on each line of its input, its outcome on a line of its output, both JSON."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import uvloop

from comparison import grpc_connections, http_connections
from comparison.load import Outcome, drive
from comparison.prompts import prompts


@dataclass(frozen=True)
class Job:
    """One run. ``door`` is grpc, events or whole; ``path`` is for HTTP, ``model`` the name to ask for."""

    door: str
    host: str
    port: int
    model: str
    path: str
    concurrency: int
    requests: int
    max_tokens: int
    seed: int


async def run(job: Job) -> Outcome:
    """Connects, drives, hangs up."""
    make = functools.partial(*_DOORS[job.door](job))
    loop = asyncio.get_running_loop()
    connections: list[Any] = []
    for _ in range(job.concurrency):
        _, connection = await loop.create_connection(make, job.host, job.port)
        connections.append(connection)
    try:
        return await drive(connections, job.requests)
    finally:
        for connection in connections:
            connection.close()


def _grpc(job: Job) -> tuple[Callable[..., Any], list[Any]]:
    from tritonclient.grpc import service_pb2

    def message(prompt: str) -> bytes:
        request = service_pb2.ModelInferRequest(model_name=job.model)
        settings = msgspec.json.encode(_sampling(job))
        for name, kind, raw in (
            ("text_input", "BYTES", _element(prompt.encode())),
            ("sampling_parameters", "BYTES", _element(settings)),
            ("stream", "BOOL", b"\x01"),
        ):
            request.inputs.add(name=name, datatype=kind, shape=[1])
            request.raw_input_contents.append(raw)
        return bytes(request.SerializeToString())

    calls = [grpc_connections.call(f"{job.host}:{job.port}", message(prompt)) for prompt in _prompts(job)]
    return grpc_connections.InferStream, calls


def _element(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _events(job: Job) -> tuple[Callable[..., Any], list[Any]]:
    documents = [{"model": job.model, "prompt": prompt, "stream": True, **_sampling(job)} for prompt in _prompts(job)]
    return http_connections.EventStream, _posts(job, documents)


def _generate_events(job: Job) -> tuple[Callable[..., Any], list[Any]]:
    documents = [{"text_input": prompt, "stream": True, **_sampling(job)} for prompt in _prompts(job)]
    return http_connections.EventStream, _posts(job, documents)


def _whole(job: Job) -> tuple[Callable[..., Any], list[Any]]:
    documents = [{"text_input": prompt, **_sampling(job)} for prompt in _prompts(job)]
    return http_connections.WholeAnswer, _posts(job, documents)


def _posts(job: Job, documents: list[dict[str, Any]]) -> list[Any]:
    host = f"{job.host}:{job.port}"
    return [http_connections.post(host, job.path, msgspec.json.encode(document)) for document in documents]


def _prompts(job: Job) -> list[str]:
    return prompts(job.seed, job.requests)


def _sampling(job: Job) -> dict[str, Any]:
    return {"temperature": 0.0, "max_tokens": job.max_tokens, "ignore_eos": True}


_DOORS = {"grpc": _grpc, "events": _events, "generate_events": _generate_events, "whole": _whole}


def main() -> None:
    """Until its input ends."""
    for line in sys.stdin:
        job = msgspec.json.decode(line, type=Job)
        outcome = uvloop.run(run(job))
        print(outcome.line(), flush=True)


if __name__ == "__main__":
    main()
