"""Stubs that Triton 24.10 has lost: their models are dead in a server that runs, and it says nothing of it.

A stub that was killed is neither buried nor replaced. A stub whose heartbeat was late by a second while it loaded (a
paused or starved machine) is taken for dead, and a thread of the server waits for its end, which never comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_STUB = "triton_python_b"  # the kernel keeps 15 characters of a name
_WAIT4 = "61"  # the system call's number on x86_64
PATIENCE_S = 10.0  # a server that unloads buries its stub within moments
WAITING_PATIENCE_S = 30.0  # and waits for one that ends no longer than this


class LostStubs:
    """Told by the state of the server's children and threads over a while."""

    def __init__(self, server_pid: int, proc: Path = Path("/proc")) -> None:
        self._server_pid = server_pid
        self._proc = proc
        self._first_seen_s: dict[tuple[int, float], float] = {}

    def any(self, now_s: float) -> bool:
        """To be asked each second or so."""
        doubtful = {*self._zombies(), *self._waited_for()}
        self._first_seen_s = {stub: self._first_seen_s.get(stub, now_s) for stub in doubtful}
        return any(now_s - seen_s >= patience_s for (_, patience_s), seen_s in self._first_seen_s.items())

    def _zombies(self) -> Iterator[tuple[int, float]]:
        """Stubs that were killed, with how long that may last."""
        for stat in self._proc.glob("[0-9]*/stat"):
            try:
                head, _, tail = stat.read_text(errors="replace").rpartition(")")
            except OSError:
                continue
            state, parent, *_ = tail.split()
            if state == "Z" and int(parent) == self._server_pid and head.partition("(")[2] == _STUB:
                yield int(stat.parent.name), PATIENCE_S

    def _waited_for(self) -> Iterator[tuple[int, float]]:
        """Stubs for whose end a thread of the server waits; none where the kernel doesn't let us look."""
        for call in self._proc.glob(f"{self._server_pid}/task/*/syscall"):
            try:
                number, *arguments = call.read_text().split()
            except OSError:
                continue
            if number == _WAIT4 and arguments:
                yield int(arguments[0], 16), WAITING_PATIENCE_S
