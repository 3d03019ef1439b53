"""The engine's death noticed without traffic, answered at once, and healed a few times."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from rbln_vllm_backend import kept_memory
from rbln_vllm_backend.engine import Engine
from rbln_vllm_backend.errors import BackendError, EngineDown
from rbln_vllm_backend.pulse import Pulse
from rbln_vllm_backend.service import Service

_log = logging.getLogger(__name__)

WINDOW_S = 600.0  # restarts are counted over this time
_LONGEST_PAUSE_S = 30.0
_STOP_RETRY_S = 0.5


class Supervision:
    """A thread that looks after the engine of a service, until ``stop``.

    A dead or stalled engine: every open stream is answered and requests are refused at once; the engine is started
    again, after pauses that grow, at most ``restarts`` times in 10 minutes. Then the model stays down and says so. This
    one thread starts the engine each time, and lives as long: an engine's processes end with the thread they come from.
    """

    def __init__(
        self,
        engine: Engine,
        service: Service,
        restarts: int,
        stall_s: float,
        interval_s: float = 0.1,
        first_pause_s: float = 1.0,
    ) -> None:
        """A pause before a restart is twice the one before, beginning with ``first_pause_s`` seconds."""
        self._engine = engine
        self._service = service
        self._restarts = restarts
        self._stall_s = stall_s
        self._interval_s = interval_s
        self._first_pause_s = first_pause_s
        self._pulse = Pulse(engine.progress, stall_s)
        self._restarted_at_s: deque[float] = deque()
        self._stopped = threading.Event()
        self._done = threading.Event()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervision", daemon=True)

    def start(self) -> None:
        """Starts the thread; the engine and the service run."""
        self._thread.start()

    def stop(self) -> None:
        """Nothing is healed any more; a restart on its way is given up. The engine, if there is one, goes on."""
        self._stopped.set()
        while self._thread.is_alive() and not self._done.wait(_STOP_RETRY_S):
            if not self._service.is_accepting:
                self._engine.stop()  # the thread may be waiting for its start

    def release(self) -> None:
        """Ends the thread, after ``stop`` and once the engine was stopped: its processes would be killed with it."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._look_after()
        self._done.set()
        self._released.wait()

    def _look_after(self) -> None:
        while not self._stopped.wait(self._interval_s):
            failure = self._failure()
            if failure is not None and not self._heal(failure):
                return

    def _failure(self) -> str | None:
        if self._pulse.has_stopped(time.monotonic(), running=self._service.num_open > 0):
            return f"it made no step for {self._stall_s:g} s while requests ran (serving.engine_stall_s)"
        return self._engine.failure()

    def _heal(self, failure: str) -> bool:
        """Whether the engine serves again."""
        while (pause_s := self._next_pause_s()) is not None:
            _log.error("The engine is down: %s. It is started again in %g s", failure, pause_s)
            self._service.suspend(EngineDown("The engine is down and is started again; try again later."))
            if self._stopped.wait(pause_s):
                return False
            try:
                self._restart()
            except BackendError as error:
                failure = str(error)
            except Exception as error:
                _log.exception("The engine's restart failed inside the backend")
                failure = repr(error)
            else:
                return True
            if self._stopped.is_set():
                return False
        self._give_up(failure)
        return False

    def _next_pause_s(self) -> float | None:
        """How long to wait before the next restart; None if none is left."""
        now_s = time.monotonic()
        while self._restarted_at_s and now_s - self._restarted_at_s[0] > WINDOW_S:
            self._restarted_at_s.popleft()
        done = len(self._restarted_at_s)
        if done >= self._restarts:
            return None
        return min(self._first_pause_s * 2.0**done, _LONGEST_PAUSE_S)

    def _restart(self) -> None:
        began_s = time.monotonic()
        self._restarted_at_s.append(began_s)
        self._engine.stop()
        kept_memory.keep()
        if self._stopped.is_set():
            raise EngineDown("The model is being stopped.")
        description = self._engine.start()
        self._wait(self._service.warm_up())
        kept_memory.keep()
        self._pulse.has_stopped(time.monotonic(), running=False)
        self._service.resume()
        _log.info("The engine is up again after %.1f s: %s", time.monotonic() - began_s, description)

    def _wait(self, warm_up: Future[None]) -> None:
        """A warm-up may take as long as it likes, unless the engine dies in it."""
        while True:
            try:
                warm_up.result(timeout=self._interval_s)
                return
            except FutureTimeout:
                failure = "the model is being stopped" if self._stopped.is_set() else self._engine.failure()
                if failure is not None:
                    warm_up.cancel()
                    raise EngineDown(f"The engine died in the warm-up: {failure}") from None

    def _give_up(self, failure: str) -> None:
        _log.error(
            "The engine is down: %s. It was started again %d times in 10 minutes (serving.engine_restarts = %d), and "
            "stays down; load the model again",
            failure,
            len(self._restarted_at_s),
            self._restarts,
        )
        self._service.suspend(EngineDown("The engine has died too often and stays down; load the model again."))
        self._engine.stop()
