"""A real tritonserver for tests, on free ports."""

from __future__ import annotations

import contextlib
import functools
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rbln_vllm_backend.embedded_server import ServerProcess, StubLostError

_LOG_SHOWN = 6000  # characters
_FURTHER_STARTS = 2
# vLLM's processes and every client open connections from port 32768 on, and one may take what a server was to have.
_PORTS = (12_000, 32_000)

READY_DEADLINE_S = 400.0  # a starved machine needs minutes


@dataclass(frozen=True)
class RunningServer:
    """Where a server listens (host:port), its log, and its process."""

    http: str
    grpc: str
    metrics: str
    log: Path
    process: ServerProcess

    def log_text(self) -> str:
        """What the server and the engine have printed so far."""
        return self.log.read_text(errors="replace")

    def wait_for_log(self, words: str, deadline_s: float) -> None:
        """Returns once the log holds the words."""
        deadline = time.monotonic() + deadline_s
        while words not in self.log_text():
            assert time.monotonic() < deadline, f"the log never said {words!r}:\n{self.log_text()[-2000:]}"
            time.sleep(0)


@contextlib.contextmanager
def running(
    repository: Path,
    log: Path,
    options: Sequence[str] = (),
    ready_deadline_s: float | None = READY_DEADLINE_S,
    own_session: bool = True,
) -> Iterator[RunningServer]:
    """Starts a server on the repository, waits until it is ready (unless the deadline is None), stops it.

    A server that Triton 24.10 has hung in its start, as machines that stall make it do, is started again.
    """
    start = functools.partial(_started, repository, log, options, own_session)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start())
        try:
            if ready_deadline_s is not None:
                server = _ready(
                    server, stack, ready_deadline_s, lambda: _started(repository, log, options, own_session)
                )
            yield server
        except BaseException:
            print(server.log_text()[-_LOG_SHOWN:])  # pytest shows it with the failure
            raise


@contextlib.contextmanager
def _started(repository: Path, log: Path, options: Sequence[str], own_session: bool) -> Iterator[RunningServer]:
    http, grpc, metrics = free_ports(3)
    ports = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    process = ServerProcess(repository, options, **ports, log_path=log, own_session=own_session)
    with process:
        yield RunningServer(f"localhost:{http}", f"localhost:{grpc}", f"localhost:{metrics}", log, process)


def _ready(
    server: RunningServer,
    stack: contextlib.ExitStack,
    deadline_s: float,
    start: Callable[[], contextlib.AbstractContextManager[RunningServer]],
) -> RunningServer:
    for _ in range(_FURTHER_STARTS):
        try:
            server.process.wait_ready(deadline_s)
        except StubLostError as error:
            print(error)
            server.process.kill()
            server.process.wait()
            server = stack.enter_context(start())
        else:
            return server
    server.process.wait_ready(deadline_s)
    return server


def free_ports(count: int) -> list[int]:
    """TCP ports that nobody listens on, below those that the kernel gives to whoever asks for any."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.randrange(*_PORTS)
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("0.0.0.0", port))
                ports.append(port)
        return ports
