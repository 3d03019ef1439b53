"""The small process beside a stub: when the server or the stub is gone it ends the stub, and what that has started.

Run by its path in an interpreter without site-packages (``orphan_guard.follow_server``), so it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.5
SWEEPS = 10
SWEEP_S = 0.1
_TRACKER = b"resource_tracker"  # removes shared memory that is left, and then ends by itself


def main() -> None:
    """Arguments: the stub's process id, the server's, and the variable that names a process's owner."""
    stub, server, variable = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    while os.getppid() == stub and _parent(stub) == server:  # a dead stub stays a zombie: the server never buries it
        time.sleep(POLL_S)
    _kill(stub)
    _end_owned(stub, variable)


def _end_owned(stub: int, variable: str) -> None:
    """Ends the engine's processes that hadn't asked the kernel yet to end with their parent, for seconds after a spawn.

    A few sweeps, since one of them may be spawning another.
    """
    owners = {stub}
    for _ in range(SWEEPS):
        for pid in _owned(owners, variable):
            owners.add(pid)
            _kill(pid)
        time.sleep(SWEEP_S)


def _owned(owners: set[int], variable: str) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            is_tracker = _TRACKER in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        is_owned = any(f"{variable}={owner}".encode() in environment for owner in owners)
        if is_owned and not is_tracker and int(folder.name) != os.getpid():
            yield int(folder.name)


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
