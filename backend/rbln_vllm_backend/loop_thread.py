"""The event loop on a thread of its own: the only way in from Triton's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs one event loop until ``stop``; uvloop's where it is installed (vLLM brings it)."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine-loop", daemon=True)

    def start(self) -> None:
        """Starts the thread; an engine's process must have been started before."""
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls the function soon, on the loop; from any thread. After ``stop`` nothing is called."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Calls the function once what is ready now has run; on the loop only."""
        self._loop.call_soon(function)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs the coroutine on the loop; its result or error comes through the future."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Ends the loop and joins its thread; what still runs on it is cancelled."""
        if self._thread.is_alive():
            self.run(_cancel_the_rest()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
