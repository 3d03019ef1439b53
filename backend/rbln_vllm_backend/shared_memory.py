"""Python's shared memory of processes that may be killed: it stays in /dev/shm unless somebody removes it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_FOLDER = "/dev/shm/psm_"  # how multiprocessing.shared_memory names what it isn't given a name for


def mapped_by(pids: Iterable[int]) -> frozenset[Path]:
    """The files that these processes have mapped now; of a process that has ended, none."""
    found: set[Path] = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        found.update(Path(line.split(maxsplit=5)[5]) for line in lines if _FOLDER in line and "(deleted)" not in line)
    return frozenset(found)


def remove(files: Iterable[Path]) -> None:
    """Removes what is left of them; their names are never used again."""
    for file in files:
        file.unlink(missing_ok=True)
