"""Accept, generate, cancel, drain: the application, without Triton and without vLLM."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from rbln_vllm_backend.cancel_names import CancelNames
from rbln_vllm_backend.engine import Engine, Generation, Piece, Step
from rbln_vllm_backend.errors import (
    Cancelled,
    DeadlineExceeded,
    EngineDown,
    RequestError,
    Unavailable,
    as_request_error,
)
from rbln_vllm_backend.loop_thread import LoopThread
from rbln_vllm_backend.request import Request
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.stream import Outbox, Reply, ResponseStream, merge

_log = logging.getLogger(__name__)

# Repeats itself, so that a proposer which looks for repeats drafts too.
_WARMUP_PROMPT = "one two three one two three one two three one two"
_CANCELLED = "The request was cancelled."
_UNLOADED = "The model was unloaded before the request ended."
_STUBBORN_S = 5.0  # how long a cancelled request may take to leave the engine
_WARMUP_SAMPLING = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True}
# The first constraint has the engine take in the tokenizer's whole vocabulary, for which every stream waits: 1.3 s with
# 150,000 tokens.
_WARMUP_CONSTRAINT = {"max_tokens": 4, "structured_outputs": {"regex": "[a-z]{1,4}"}}


@dataclass
class _Open:
    """A request between its acceptance and its FINAL; belongs to the loop."""

    stream: ResponseStream
    request: Request
    call_id: str | None  # of a unary call
    task: asyncio.Task[None] | None = None
    reason: RequestError | None = None
    deadline: asyncio.TimerHandle | None = None
    num_tokens: int = 0  # new ones so far, all sequences together


class Service:
    """Requests in, replies out, around an engine that was started.

    ``accept`` is called by Triton's thread; ``ask_clients`` and ``end_all`` by the watch.
    """

    def __init__(self, engine: Engine, options: ServingOptions) -> None:
        self._engine = engine
        self._options = options
        self._loop = LoopThread()
        self._outbox = Outbox(self._loop.call_soon)
        self._open: dict[str, _Open] = {}
        self._names = CancelNames(options.allow_cancel_by_id)
        self._refusal: RequestError | None = None  # what every new request gets, while none is taken
        self.accepted = 0  # requests taken over since the start

    def start(self) -> None:
        """Starts the threads, and runs the warm-up requests unless they are switched off.

        Raises:
            EngineDown: the engine died in the warm-up; everything is stopped again.
        """
        self._loop.start()
        self._outbox.start()
        try:
            self.warm_up().result()
        except BaseException:
            self.stop()
            raise

    def accept(self, request: Request, reply: Reply, call_id: str | None = None) -> None:
        """Takes a request over; whatever happens, its reply gets exactly one FINAL. Never blocks, never raises.

        ``call_id`` is the private id of a unary call. Refused with UNAVAILABLE above ``serving.max_inflight_requests``.
        """
        request_id = uuid.uuid4().hex
        stream = self._outbox.open(reply, request_id, self.cancel)
        limit = self._options.max_inflight_requests
        if self._refusal is not None:
            stream.fail(self._refusal)
        elif limit is not None and len(self._open) >= limit:
            stream.fail(
                Unavailable(f"serving.max_inflight_requests = {limit} requests are in flight; try again later.")
            )
        else:
            self.accepted += 1
            self._open[request_id] = _Open(stream, request, call_id)
            self._loop.call(self._begin, request_id)

    @property
    def is_accepting(self) -> bool:
        """Whether new requests are taken; false while the engine is down."""
        return self._refusal is None

    @property
    def num_open(self) -> int:
        """Requests between their acceptance and their end."""
        return len(self._open)

    def warm_up(self) -> Future[None]:
        """Runs the warm-up requests, unless they are switched off; raises EngineDown if the engine dies in it."""
        return self._loop.run(self._warm_up() if self._options.warmup else _nothing())

    def suspend(self, reason: RequestError) -> None:
        """The engine is lost: ends every open request with the reason, at once, and refuses each new one with it."""
        self._refusal = reason
        self._loop.run(self._lose(reason)).result()

    def resume(self) -> None:
        """The engine serves again."""
        self._refusal = None

    def ask_clients(self) -> int:
        """Looks after every open request, and cancels those whose client has gone. Returns how many are open."""
        open_now = self._now_open()
        for opened in open_now:
            opened.stream.ask_client()
        return len(open_now)

    def cancel(self, request_id: str) -> None:
        """Aborts a request in the engine; its reply gets CANCELLED. From any thread; unknown ids do nothing."""
        self._loop.call(self._end, request_id, Cancelled(_CANCELLED))

    def cancel_named(self, name: str, reply: Reply) -> None:
        """Cancels the requests that a client's id, or a private one, names; replies with their number, as text."""
        stream = self._outbox.open(reply, uuid.uuid4().hex, self.cancel)
        self._loop.call(self._cancel_named, name, stream)

    def end_all(self) -> None:
        """Aborts every open request; each reply gets UNAVAILABLE. From any thread."""
        self._loop.run(self._end_all())

    def stop(self) -> None:
        """Ends what is open, the engine, and the threads."""
        self._refusal = Unavailable(_UNLOADED)
        self._loop.run(self._end_all()).result()
        self._engine.stop()
        self._loop.stop()
        self._outbox.stop()

    def _begin(self, request_id: str) -> None:
        opened = self._open[request_id]
        if self._refusal is not None:  # it came since the request was accepted
            del self._open[request_id]
            opened.stream.fail(self._refusal)
            return
        request = opened.request
        self._names.add(request_id, opened.call_id, request.client_id)
        # A deadline tells how far the answer came, so a unary one is then collected from its steps.
        stepwise = request.stream or request.timeout_s is not None
        generation = Generation(
            request_id,
            request.prompt,
            request.sampling,
            stepwise,
            request.adapter,
            request.priority,
            request.embedding,
            request.trace_headers,
        )
        opened.task = asyncio.ensure_future(self._serve(opened, generation, collect=stepwise and not request.stream))
        if request.timeout_s is not None:
            loop = asyncio.get_running_loop()
            opened.deadline = loop.call_later(request.timeout_s, self._time_out, request_id, request.timeout_s)
        # Not a finally in the task: a task that is cancelled before its first step runs no line of its own.
        opened.task.add_done_callback(partial(self._finish, request_id))

    async def _serve(self, opened: _Open, generation: Generation, collect: bool) -> None:
        collected: list[Step] = []
        async with aclosing(self._engine.generate(generation)) as steps:
            async for step in steps:
                opened.num_tokens += sum(piece.num_tokens for piece in step.pieces)
                if not collect:
                    opened.stream.push(step)
                    continue
                collected.append(step)
        if whole := merge(collected):
            opened.stream.push(whole)

    def _time_out(self, request_id: str, timeout_s: float) -> None:
        so_far = self._open[request_id].num_tokens
        self._end(request_id, DeadlineExceeded(f"The request's {timeout_s:g} s are over, after {so_far} new tokens."))

    def _finish(self, request_id: str, task: asyncio.Task[None]) -> None:
        opened = self._open.pop(request_id)
        if opened.deadline is not None:
            opened.deadline.cancel()
        self._names.remove(request_id, opened.call_id, opened.request.client_id)
        error = opened.reason or (Cancelled(_CANCELLED) if task.cancelled() else task.exception())
        if error is not None and not isinstance(error, RequestError):
            _log.error("Request %s failed inside the backend", request_id, exc_info=error)
        # Its code, not its words: those may quote what the client sent.
        outcome = getattr(error, "code", "INTERNAL") if error is not None else "complete"
        _log.debug("Request %s ended after %d new tokens: %s", request_id, opened.num_tokens, outcome)
        # A stream whose last step was pushed takes no failure any more.
        opened.stream.fail(as_request_error(error or RuntimeError("no last step"), request_id))

    def _cancel_named(self, name: str, stream: ResponseStream) -> None:
        try:
            request_ids = self._names.find(name)
        except RequestError as error:
            stream.fail(error)
            return
        for request_id in request_ids:
            self._end(request_id, Cancelled(_CANCELLED))
        stream.push(Step((Piece(0, str(len(request_ids)), 0),), num_input_tokens=0, finished=True))

    def _end(self, request_id: str, reason: RequestError) -> None:
        opened = self._open.get(request_id)
        if opened is not None and opened.task is not None and opened.reason is None:
            opened.reason = reason
            opened.task.cancel()

    async def _end_all(self) -> None:
        await self._end_each(Unavailable(_UNLOADED))

    async def _lose(self, reason: RequestError) -> None:
        for opened in self._now_open():
            opened.stream.fail(reason)  # not when its task has ended: that may wait for an engine that hangs
        await self._end_each(reason)

    async def _end_each(self, reason: RequestError) -> None:
        tasks = [opened.task for opened in self._now_open() if opened.task is not None]
        for request_id in list(self._open):
            self._end(request_id, reason)
        if tasks:
            await asyncio.wait(tasks, timeout=_STUBBORN_S)

    def _now_open(self) -> list[_Open]:
        """A copy made in one step: Triton's thread adds requests at any moment."""
        return list(self._open.values())

    async def _warm_up(self) -> None:
        samplings: dict[str, Mapping[str, Any]] = {"warm-up": _WARMUP_SAMPLING}
        if self._options.structured_outputs:
            samplings["warm-up-constraint"] = _WARMUP_CONSTRAINT
        began = time.monotonic()
        for request_id, sampling in samplings.items():
            try:
                async for _ in self._engine.generate(Generation(request_id, _WARMUP_PROMPT, sampling, stream=False)):
                    pass
            except EngineDown:
                raise
            except RequestError as error:
                _log.warning("The request %s was refused: %s", request_id, error)
                return
        _log.info("Warm-up took %.1f s", time.monotonic() - began)


async def _nothing() -> None:
    pass
