"""What the long runs share: servers with the ticking or the real engine, their memory, and a cheap gRPC client."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tritonclient.grpc.aio as grpc

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from model_repository import small_engine, write_model, write_ticking_model  # noqa: E402
from running_server import RunningServer, running  # noqa: E402
from tiny_checkpoint import make  # noqa: E402

LONGEST_S = 300.0  # of one answer; a stream without an end fails then


@contextlib.contextmanager
def ticking_server(options: Mapping[str, str] = {}, arguments: Sequence[str] = ()) -> Iterator[RunningServer]:
    """A tritonserver with this backend around an engine that gives a letter every 4 ms."""
    with tempfile.TemporaryDirectory() as folder:
        write_ticking_model(Path(folder) / "models", "llm", **{"serving.metrics_interval_s": "1", **options})
        with running(Path(folder) / "models", Path(folder) / "log", arguments) as server:
            yield server


@contextlib.contextmanager
def vllm_server(
    options: Mapping[str, str] = {}, arguments: Sequence[str] = (), max_position: int = 2048
) -> Iterator[RunningServer]:
    """A tritonserver with vLLM on a tiny random checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make(Path(folder) / "checkpoint", max_position)
        write_model(Path(folder) / "models", "llm", {**small_engine(checkpoint), **options})
        with running(Path(folder) / "models", Path(folder) / "log", arguments) as server:
            yield server


def memory_mib(server: RunningServer) -> dict[str, float]:
    """Resident memory of tritonserver, of its stub, and of what the stub has started, MiB."""
    root = psutil.Process(server.process.pid)
    stubs = [child for child in root.children() if "stub" in child.name()]
    started = [process for stub in stubs for process in stub.children(recursive=True)]
    parts = {"server": [root], "stub": stubs, "engine": started}
    return {name: sum(one.memory_info().rss for one in part) / 2**20 for name, part in parts.items() if part}


def request(prompt: str, sampling: str, request_id: str = "") -> dict[str, Any]:
    """One streamed request, as ``stream_infer`` takes it."""
    inputs = []
    for name, text in (("text_input", prompt), ("sampling_parameters", sampling)):
        inputs.append(grpc.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
    inputs.append(grpc.InferInput("stream", [1], "BOOL"))
    inputs[-1].set_data_from_numpy(np.array([True]))
    return {
        "model_name": "llm",
        "inputs": inputs,
        "request_id": request_id,
        "enable_empty_final_response": True,
    }


class Connection:
    """One gRPC connection to host:port; ``ask`` has one request on a stream of its own."""

    def __init__(self, address: str) -> None:
        self._client = grpc.InferenceServerClient(address)

    async def ask(self, prompt: str, sampling: str, at: list[float] | None = None) -> tuple[int, str | None]:
        """The number of responses with text and the error; ``at`` gets the time of each response, in seconds.

        It reads on to the end of the stream: Triton 24.10 may keep a request for ever whose client goes at its FINAL.
        """
        count = 0
        end: str | None = "the stream ended without FINAL"
        async for result, error in self._client.stream_infer(_one(request(prompt, sampling)), stream_timeout=LONGEST_S):
            if error is not None:
                end = error.message()
                continue
            if at is not None:
                at.append(time.perf_counter())
            response = result.get_response()
            count += bool(response.outputs)
            if response.parameters["triton_final_response"].bool_param:
                end = None
        return count, end

    def open(self, prompt: str, sampling: str) -> Any:
        """A stream that the caller reads and cancels."""
        return self._client.stream_infer(_one(request(prompt, sampling)))

    async def close(self) -> None:
        """Closes the connection."""
        await self._client.close()


async def _one(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield request


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    return float(np.percentile(values, 100 * share))


def verdict(holds: bool, words: str) -> int:
    """Prints the words with the verdict; the exit status."""
    print(("PASS " if holds else "FAIL ") + words, flush=True)
    return 0 if holds else 1
