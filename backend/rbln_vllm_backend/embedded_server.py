"""Runs a tritonserver (``server_assembly`` finds it) so that it stops in order and leaves nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from rbln_vllm_backend import autogroup
from rbln_vllm_backend.lost_stubs import LostStubs
from rbln_vllm_backend.server_assembly import EmbeddedServerError, Server, find_server

__all__ = ["EmbeddedServerError", "Server", "ServerProcess", "StubLostError", "find_server", "serve"]

SHARED_MEMORY = Path("/dev/shm")
PR_SET_PDEATHSIG = 1  # prctl(2)
POLL_S = 0.05
# Triton's own --exit-timeout-secs is 30 s.
STOP_TIMEOUT_S = 40.0
LEFTOVERS_TIMEOUT_S = 3.0
STUB_POLL_S = 1.0
_LOST = (
    "tritonserver has lost a model's process: it was killed, or taken for dead while it loaded on a stalled machine."
)


class StubLostError(EmbeddedServerError):
    """The server will never be ready, as it waits for a stub that it takes for dead; another start may do."""


def serve(model_repository: str, options: Sequence[str]) -> int:
    """Runs tritonserver until it ends and returns its exit status, 128 + n if signal n ended it.

    When a stub is lost (``lost_stubs``) the server is stopped, and the status is 1: it would go on without the model.
    SIGINT and SIGTERM are forwarded to tritonserver; the third one kills it with all that it started.
    To be called in the main thread. Raises EmbeddedServerError if there is no server to run.
    """
    server = ServerProcess(model_repository, options)
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) < 3:
            server.send_signal(number)
        else:
            server.kill()

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.start()
        if received:
            # It came before there was a process to forward it to; twice does no harm.
            server.send_signal(received[-1])
        return _wait(server)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(server: ServerProcess) -> int:
    lost = LostStubs(server.pid or 0)
    while (status := server.wait(timeout_s=STUB_POLL_S)) is None:
        if lost.any(time.monotonic()):
            print(f"{_LOST} Stopping.", file=sys.stderr)
            server.stop()
            return 1
    return status


class ServerProcess:
    """One tritonserver in a session of its own, which a terminal's Ctrl-C reaches only through us.

    As a context manager it starts on entry and stops on exit. tritonserver gets SIGTERM when the thread
    that started it ends, even by SIGKILL: start it from a thread that outlives it.
    """

    def __init__(
        self,
        model_repository: str | os.PathLike[str],
        options: Sequence[str] = (),
        *,
        http_port: int | None = None,
        grpc_port: int | None = None,
        metrics_port: int | None = None,
        log_path: str | os.PathLike[str] | None = None,
        own_session: bool = True,
    ) -> None:
        """A port left out is Triton's default; without a log path its output goes where ours goes.

        Without a session of its own it is a process group in ours: Linux's autogroup then schedules both as one.
        """
        self._model_repository = os.fspath(model_repository)
        self._options = tuple(options)
        self._ports = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port}
        self._log_path = log_path
        self._own_session = own_session
        self._region_prefix: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_status: int | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process id of tritonserver, which is also its group's; None before the start."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts tritonserver. Raises EmbeddedServerError if there is none, or if a given port is in use."""
        for port in filter(None, self._ports.values()):
            _check_port_is_free(port)
        server = find_server()
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(open(self._log_path, "ab")) if self._log_path is not None else None
            try:
                self._process = subprocess.Popen(
                    self._command(server),
                    env={**os.environ, **server.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=self._own_session,
                    preexec_fn=_end_with_parent(),
                )
            except OSError as error:
                raise EmbeddedServerError(f"{server.program} can't be run: {error.strerror}.") from error
        if self._own_session:
            autogroup.give_way(self._process.pid)

    def _command(self, server: Server) -> list[str]:
        given = " ".join(self._options)
        command = [server.program, f"--model-repository={self._model_repository}"]
        command += [option for option in server.options if option.split("=")[0] not in given]
        command += [f"--{name}-port={port}" for name, port in self._ports.items() if port is not None]
        if "shm-region-prefix-name=" not in given:
            # Servers on one host need a name each; containers may share both /dev/shm and process ids.
            self._region_prefix = f"rbln_vllm_{os.getpid()}_{secrets.token_hex(4)}_"
            command.append(f"--backend-config=python,shm-region-prefix-name={self._region_prefix}")
        return [*command, *self._options]

    def wait_ready(self, deadline_s: float) -> None:
        """Returns once the server and its models are ready.

        Raises EmbeddedServerError if it ends, or isn't ready within deadline_s seconds; StubLostError if it can't be.
        """
        give_up_at = time.monotonic() + deadline_s
        lost, look_at = LostStubs(self.pid or 0), time.monotonic()
        where = "its output says why" if self._log_path is None else f"see its log, {os.fspath(self._log_path)}"
        while not _is_ready(self._ports["http"] or 8000):
            if self.wait(timeout_s=POLL_S) is not None:
                raise EmbeddedServerError(f"tritonserver ended with status {self._exit_status}: {where}.")
            if time.monotonic() > look_at:
                look_at += STUB_POLL_S
                if lost.any(time.monotonic()):
                    raise StubLostError(f"{_LOST} Start it again; {where}.")
            if time.monotonic() > give_up_at:
                raise EmbeddedServerError(f"tritonserver was not ready after {deadline_s:g} s: {where}.")

    def send_signal(self, number: int) -> None:
        """Sends a signal to tritonserver alone, which stops its stub and the engine in order."""
        if self._process is not None and self._exit_status is None:
            # Popen.send_signal would bury the process before `wait` has cleared its group.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kills tritonserver and all that it started, at once."""
        if self._process is not None and self._exit_status is None:
            _signal_group(self._process.pid, signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit status, 128 + n after signal n, once nothing of it is left.

        None if tritonserver still runs after timeout_s seconds, or was never started.
        """
        if self._process is None or self._exit_status is not None:
            return self._exit_status
        pid = self._process.pid
        # WNOWAIT: until it is buried nobody else can get its number, and so its group's.
        if timeout_s is None:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        elif not _poll(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG), timeout_s):
            return None
        _signal_group(pid, signal.SIGTERM)
        status = self._process.wait()
        if not _poll(lambda: _group_is_gone(pid), LEFTOVERS_TIMEOUT_S):
            _signal_group(pid, signal.SIGKILL)
            _poll(lambda: _group_is_gone(pid), LEFTOVERS_TIMEOUT_S)
        self._remove_shared_memory()
        self._exit_status = status if status >= 0 else 128 - status
        return self._exit_status

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Stops tritonserver in order, kills it after timeout_s seconds, and returns its exit status."""
        self.send_signal(signal.SIGTERM)
        if self.wait(timeout_s) is None:
            self.kill()
        return self.wait()

    def _remove_shared_memory(self) -> None:
        # tritonserver removes its regions itself unless it was killed.
        if self._region_prefix is not None:
            for region in SHARED_MEMORY.glob(f"{self._region_prefix}*"):
                region.unlink(missing_ok=True)


def _end_with_parent() -> Callable[[], None]:
    """What the child runs before tritonserver: it asks the kernel for SIGTERM when we die."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask() -> None:
        if os.getpgrp() != os.getpid():
            os.setpgrp()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # we died before the kernel was asked

    return ask


def _check_port_is_free(port: int) -> None:
    # Else the answer of another server would pass for ours.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise EmbeddedServerError(f"Port {port} can't be used: {error.strerror}.") from error


def _is_ready(port: int) -> bool:
    # http.client knows no proxies, which would be asked in vain for a server on this machine.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _group_is_gone(group: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        # As a container's first process we inherit orphans, and have to bury them.
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            # A zombie is gone for us; whoever inherited it may be slow to bury it.
            if int(its_group) == group and state != "Z":
                return False
    return True


def _poll(condition: Callable[[], object], timeout_s: float) -> bool:
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(POLL_S)
    return True
