"""The server's share of a small machine, where Linux schedules each session as one (sched(7), autogroup).

vLLM's processes spin with ``sched_yield``. On two processors, in a session of the client's weight, they kept the client
waiting for up to 9 s at a time (Linux 6.18): a stream came in bursts. With a nice value of 5 no gap was above 0.1 s and
tokens/s stayed. A control group of one's own, such as a container's, has no autogroup.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

NICE = 5


def give_way(pid: int) -> None:
    """Lowers the weight of the process's session beside the others; does nothing where there are no such groups."""
    with contextlib.suppress(OSError):
        file_of(pid).write_text(str(NICE))


def file_of(pid: int) -> Path:
    """Where the kernel takes and tells the nice value of the process's session."""
    return Path(f"/proc/{pid}/autogroup")
