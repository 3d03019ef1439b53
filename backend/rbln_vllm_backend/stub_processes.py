"""The server's other stubs, seen in /proc: whether this model is being loaded a second time."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_STUB = "triton_python_backend_stub"
_NUMBERED = re.compile(r"_\d+$")  # an instance's name; a process that only completes the configuration has none


@dataclass(frozen=True)
class _Stub:
    """A stub's parent, when it started (clock ticks since boot), its model's file and its instance's name."""

    parent: int
    started: int
    model_file: str
    instance: str

    def succeeds(self, other: _Stub) -> bool:
        if self.parent != other.parent or self.started <= other.started:
            return False
        completes = self.model_file == other.model_file and not _NUMBERED.search(self.instance)
        return completes or self.instance == other.instance


def has_successor(proc: Path = Path("/proc"), pid: int | None = None) -> bool:
    """Whether our server runs a younger stub of the same model instance than the process ``pid`` (this one)."""
    own = _read(proc / str(pid or os.getpid()))
    others = (_read(folder) for folder in proc.glob("[0-9]*"))
    return own is not None and any(other is not None and other.succeeds(own) for other in others)


def _read(folder: Path) -> _Stub | None:
    """The stub with that folder in /proc; None if it isn't one, or has ended."""
    try:
        arguments = (folder / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        state, parent, *rest = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # stub, model file, …, instance name, and a last word that has been DEFAULT
    if len(arguments) < 4 or not arguments[0].endswith(_STUB) or state == "Z":
        return None
    return _Stub(int(parent), int(rest[17]), arguments[1], arguments[-2])
