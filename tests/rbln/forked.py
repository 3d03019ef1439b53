"""One call in a child that shares what is imported: a plugin that keeps its choices meets each case anew."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0


class FailedInFork(Exception):
    """What the function raised there: the name of the error, and its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def in_a_fork(function: Callable[..., T], *arguments: Any) -> T:
    """The function's result; an error there is a FailedInFork here."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        assert ours.poll(DEADLINE_S), "the child has not answered"
        kind, value = ours.recv()
    finally:
        process.kill()
        process.join()
    if kind == "error":
        raise FailedInFork(*value)
    result: T = value
    return result


def _call(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        answer = ("result", function(*arguments))
    except Exception as error:
        answer = ("error", (type(error).__name__, str(error)))
    pipe.send(answer)


def import_what_it_imports(function: Callable[..., Any], *arguments: Any, but: str) -> None:
    """Imports here what the call imports, so that later forks need not; not what belongs to the package ``but``."""
    before = set(sys.modules)
    for name in in_a_fork(_modules_after, function, arguments):
        if name not in before and name.split(".")[0] != but and name not in sys.modules:
            with contextlib.suppress(Exception):  # some names are no modules of their own
                importlib.import_module(name)


def _modules_after(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    function(*arguments)
    return list(sys.modules)
