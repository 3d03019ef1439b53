"""A stub that was killed: Triton 24.10 neither buries nor restarts it, so its model is dead in a server that runs."""

from __future__ import annotations

from pathlib import Path

_STUB = "triton_python_b"  # the kernel keeps 15 characters of a name
PATIENCE_S = 10.0  # a server that unloads buries its stub within moments


class LostStubs:
    """Told by the state of the server's children: one that has been a zombie for a while is lost."""

    def __init__(self, server_pid: int, proc: Path = Path("/proc"), patience_s: float = PATIENCE_S) -> None:
        self._server_pid = server_pid
        self._proc = proc
        self._patience_s = patience_s
        self._first_seen_s: dict[int, float] = {}

    def any(self, now_s: float) -> bool:
        """To be asked each second or so."""
        zombies = set(self._zombies())
        self._first_seen_s = {pid: self._first_seen_s.get(pid, now_s) for pid in zombies}
        return any(now_s - seen_s >= self._patience_s for seen_s in self._first_seen_s.values())

    def _zombies(self) -> list[int]:
        found = []
        for stat in self._proc.glob("[0-9]*/stat"):
            try:
                head, _, tail = stat.read_text(errors="replace").rpartition(")")
            except OSError:
                continue
            state, parent, *_ = tail.split()
            if state == "Z" and int(parent) == self._server_pid and head.partition("(")[2] == _STUB:
                found.append(int(stat.parent.name))
        return found
