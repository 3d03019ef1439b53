"""The doors that are compared: how each is started, asked and ended. All get the same checkpoint and engine flags.

All are in the session of the benchmark. Linux schedules each session as one (autogroup), and one that mostly sleeps,
like the load generator's, would be kept waiting for hundreds of milliseconds by an engine that spins in another.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import psutil

from comparison.figures import IN_PROCESS, REFERENCE
from comparison.line_process import LineProcess
from comparison.load import Outcome
from comparison.load_process import Job
from comparison.processor_time import Use, use_of
from model_repository import ROOT, write_model
from running_server import RunningServer, free_ports, running

READY_DEADLINE_S = 400.0
_ENV = "env."
_SPECULATION = "speculative_config."


@dataclass(frozen=True)
class Run:
    """How much is asked in one run."""

    concurrency: int
    requests: int
    max_tokens: int
    seed: int


class Contestant(Protocol):
    """One way to the engine. ``root`` is the process whose tree it is, where that is known."""

    name: str
    root: psutil.Process | None

    def run(self, run: Run) -> Outcome:
        """Drives the load of one run through it."""

    def use(self) -> Use:
        """What its processes have used so far."""


class InProcess:
    """vLLM's AsyncLLM, asked in its own process."""

    name = IN_PROCESS

    def __init__(self, parameters: Mapping[str, str], log: IO[str]) -> None:
        self._process = LineProcess("in_process", as_flags(parameters), log, _environment(parameters))
        self.root = self._process.process

    def wait_ready(self) -> None:
        """Returns once the engine has started."""
        self._process.answer()

    def run(self, run: Run) -> Outcome:
        """See ``Contestant.run``."""
        return self._process.run(_job("", "", 0, run))

    def use(self) -> Use:
        """See ``Contestant.use``."""
        return use_of(self.root)

    def stop(self) -> None:
        """Ends it."""
        self._process.stop()


class OpenAIServer:
    """vLLM's own server, streaming completions."""

    name = REFERENCE

    def __init__(self, parameters: Mapping[str, str], log: IO[str], load: LineProcess) -> None:
        (self._port,) = free_ports(1)
        self._load = load
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *as_flags(parameters)]
        command += ["--host=127.0.0.1", f"--port={self._port}", "--served-model-name=llm"]
        environment = _environment(parameters)
        self._server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, preexec_fn=os.setpgrp)
        self.root = psutil.Process(self._server.pid)

    def wait_ready(self) -> None:
        """Returns once it answers."""
        deadline = time.monotonic() + READY_DEADLINE_S
        while not _answers(self._port, "/health"):
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("vLLM's server did not start; its log says why")
            time.sleep(0.1)

    def run(self, run: Run) -> Outcome:
        """See ``Contestant.run``."""
        return self._load.run(_job("events", "/v1/completions", self._port, run))

    def use(self) -> Use:
        """See ``Contestant.use``."""
        return use_of(self.root)

    def stop(self) -> None:
        """Ends it, in order if it can."""
        self._server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(timeout=30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, 9)


@dataclass
class TritonDoor:
    """One door of a running tritonserver; ``root`` is None where its processes aren't known."""

    name: str
    door: str
    path: str
    port: int
    model: str
    load: LineProcess
    root: psutil.Process | None
    engine_model: str = "llm"  # the model whose stub holds the engine

    def run(self, run: Run) -> Outcome:
        """See ``Contestant.run``."""
        return self.load.run(_job(self.door, self.path, self.port, run, self.model))

    def use(self) -> Use:
        """See ``Contestant.use``."""
        return use_of(self.root, self.engine_model) if self.root else Use({}, {})


def doors(server: RunningServer, load: LineProcess, unary: bool, named: str = "") -> list[TritonDoor]:
    """The doors of this backend: gRPC streams, and the unary model if the repository has it."""
    assert server.process.pid is not None
    root = psutil.Process(server.process.pid)
    http_port, grpc_port = (int(address.rsplit(":", 1)[1]) for address in (server.http, server.grpc))
    found = [TritonDoor(f"Triton gRPC stream{named}", "grpc", "", grpc_port, "llm", load, root)]
    if unary:
        path = "/v2/models/llm_unary/generate"
        found.append(TritonDoor("Triton HTTP unary", "whole", path, http_port, "llm_unary", load, root))
    return found


@contextlib.contextmanager
def triton(folder: Path, parameters: Mapping[str, str]) -> Iterator[tuple[RunningServer, bool]]:
    """A tritonserver with the model ``llm``, and with ``llm_unary`` where this checkout has it."""
    repository = folder / "models"
    write_model(repository, "llm", parameters)
    unary = ROOT / "model_repository" / "llm_unary"
    if unary.is_dir():
        shutil.copytree(unary, repository / "llm_unary", dirs_exist_ok=True)
    log = folder / "tritonserver.log"
    with running(repository, log, ready_deadline_s=READY_DEADLINE_S, own_session=False) as server:
        yield server, unary.is_dir()


def as_flags(parameters: Mapping[str, str]) -> list[str]:
    """Parameters of config.pbtxt as flags of ``vllm serve``."""
    flags = []
    for key, text in parameters.items():
        if key.startswith((_ENV, _SPECULATION, "serving.")):
            continue
        name = "--" + key.replace("_", "-")
        flags += [name] if text == "true" else [name, text]
    nested = {key.removeprefix(_SPECULATION): text for key, text in parameters.items() if key.startswith(_SPECULATION)}
    if nested:
        typed = {key: int(text) if text.isdigit() else text for key, text in nested.items()}
        flags += ["--speculative-config", json.dumps(typed)]
    return flags


def _environment(parameters: Mapping[str, str]) -> dict[str, str]:
    chosen = {key.removeprefix(_ENV): text for key, text in parameters.items() if key.startswith(_ENV)}
    return {**os.environ, **chosen}


def _job(door: str, path: str, port: int, run: Run, model: str = "llm") -> Job:
    return Job(door, "127.0.0.1", port, model, path, run.concurrency, run.requests, run.max_tokens, run.seed)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
