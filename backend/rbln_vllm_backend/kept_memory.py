"""What was loaded stays: the garbage collector need not look at it again, neither in generation nor at the end."""

from __future__ import annotations

import gc


def keep() -> None:
    """Frees what is garbage, and lets every collection to come pass over the rest. Called after each load."""
    gc.unfreeze()  # what an engine that has gone left behind is garbage by now
    gc.collect()
    gc.freeze()
