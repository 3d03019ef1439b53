"""From the event loop to Triton: order, merging, and exactly one FINAL.

The loop pushes steps and never waits. What one turn of it pushed, which is one engine step, is handed to a sender
thread at once: waking the thread for each stream would have the two fight for the interpreter's lock. Each stream stays
with one thread, so its order holds. Steps that pile up while the thread is busy are merged into one response, and a
step without text waits for one that has some: no response is empty but the last.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol

from rbln_vllm_backend.engine import Piece, Step
from rbln_vllm_backend.errors import RequestError, as_request_error

_log = logging.getLogger(__name__)


class Reply(Protocol):
    """One client's answer, as the server takes it."""

    def send(self, step: Step) -> None:
        """Sends one response, with FINAL if the step finishes the request."""

    def fail(self, error: RequestError) -> None:
        """Sends one error, with FINAL."""

    def is_cancelled(self) -> bool:
        """Whether the client has gone; an exchange with the server, so never asked on the loop.

        Never asked during or after FINAL either: the server then reads what it has freed (Triton 24.10 crashes).
        """


class ResponseStream:
    """One request's way out. ``push`` and ``fail`` belong to the loop, ``deliver`` to the sender thread.

    All that is said to the server of one request is said by its one sender thread, so nothing can follow FINAL.
    ``on_gone`` is called by that thread when the client turns out to have gone.
    """

    def __init__(
        self,
        reply: Reply,
        lane: Lane,
        request_id: str,
        on_gone: Callable[[str], None],
    ) -> None:
        self.request_id = request_id
        self._reply = reply
        self._lane = lane
        self._on_gone = on_gone
        self._announced = False  # the lane holds this stream, and whatever is pushed now goes out with it
        self._to_ask = False
        self._waiting: deque[Step] = deque()
        self._failure: RequestError | None = None
        self._ended = False  # loop side: the last step or a failure was pushed
        self._closed = False  # sender side: FINAL was sent

    def push(self, step: Step) -> None:
        """Adds a step; after the end nothing is taken."""
        if self._ended:
            return
        self._ended = step.finished
        self._waiting.append(step)
        if not self._announced and _is_worth_a_response(step):
            self._announced = True
            self._lane.put_with_the_turn(self)

    def fail(self, error: RequestError) -> None:
        """Ends the stream with an error, behind what already waits; after the end it does nothing."""
        if self._ended:
            return
        self._ended = True
        self._failure = error
        self._lane.put(self)

    def ask_client(self) -> None:
        """Has the sender thread look whether the client has gone, once; from any thread."""
        if not self._to_ask:
            self._to_ask = True
            self._lane.put(self)

    def deliver(self) -> None:
        """Sends what waits; at the end, FINAL. A reply that can't be sent is given up, and said in the log."""
        if self._closed:
            return
        # Before the look at what waits: what is pushed after it is announced anew.
        announced, self._announced = self._announced, False
        failure = self._failure  # read first: what was pushed before the failure is then in the queue
        step = merge(_drain(self._waiting))
        if step is not None and not announced and not _is_worth_a_response(step):
            self._waiting.appendleft(step)
            step = None
        try:
            if step is not None:
                self._closed = step.finished
                self._reply.send(step)
            if failure is not None:
                self._closed = True
                self._reply.fail(failure)
            if self._to_ask and not self._closed:
                self._to_ask = False
                if self._reply.is_cancelled():
                    self._on_gone(self.request_id)
        except Exception as error:
            _log.exception("The response of request %s could not be sent", self.request_id)
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._closed = True
        try:
            self._reply.fail(as_request_error(error, self.request_id))
        except Exception:
            _log.warning("Nor could its error: the server has closed request %s", self.request_id)


class Lane:
    """The way to one sender thread. ``call_soon`` calls a function once the loop's present turn is over."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._queue: SimpleQueue[Sequence[ResponseStream] | None] = SimpleQueue()
        self._turn: list[ResponseStream] = []

    def put(self, stream: ResponseStream) -> None:
        """Has the stream delivered; from any thread."""
        self._queue.put((stream,))

    def put_with_the_turn(self, stream: ResponseStream) -> None:
        """The same, together with all that the loop's present turn puts; on the loop only."""
        self._turn.append(stream)
        if len(self._turn) == 1:
            self._call_soon(self._end_turn)

    def end(self) -> None:
        """Ends ``deliver_all`` behind what was put before; the loop has ended."""
        self._end_turn()
        self._queue.put(None)

    def deliver_all(self) -> None:
        """The sender thread: delivers until ``end``."""
        while (streams := self._queue.get()) is not None:
            for stream in streams:
                stream.deliver()

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, []
        self._queue.put(turn)


class Outbox:
    """The sender threads. A stream keeps the thread that it was given; for ``call_soon`` see ``Lane``."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], threads: int = 4) -> None:
        self._lanes = [Lane(call_soon) for _ in range(threads)]
        self._next = itertools.cycle(self._lanes)
        self._threads = [
            threading.Thread(target=lane.deliver_all, name=f"sender-{number}", daemon=True)
            for number, lane in enumerate(self._lanes)
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def open(self, reply: Reply, request_id: str, on_gone: Callable[[str], None]) -> ResponseStream:
        """A stream to one client."""
        return ResponseStream(reply, next(self._next), request_id, on_gone)

    def stop(self) -> None:
        """Delivers what waits, then ends the threads."""
        for lane in self._lanes:
            lane.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()


def merge(steps: Sequence[Step]) -> Step | None:
    """Several steps of one request as one; each sequence's pieces are joined, in the order of their index."""
    if len(steps) < 2:
        return steps[0] if steps else None
    by_index: dict[int, list[Piece]] = {}
    for step in steps:
        for piece in step.pieces:
            by_index.setdefault(piece.index, []).append(piece)
    pieces = tuple(_join(by_index[index]) for index in sorted(by_index))
    last = steps[-1]
    return Step(pieces, last.num_input_tokens, last.finished, last.num_cached_tokens)


def _join(pieces: Sequence[Piece]) -> Piece:
    last = pieces[-1]
    if len(pieces) == 1:
        return last
    logprobs = [piece.logprobs for piece in pieces if piece.logprobs is not None]
    return Piece(
        index=last.index,
        text="".join(piece.text for piece in pieces),
        num_tokens=sum(piece.num_tokens for piece in pieces),
        finish_reason=last.finish_reason,
        cumulative_logprob=last.cumulative_logprob,
        logprobs=tuple(itertools.chain.from_iterable(logprobs)) if logprobs else None,
        speculation=last.speculation,
        stop_reason=last.stop_reason,
        token_ids=tuple(itertools.chain.from_iterable(piece.token_ids for piece in pieces)),
    )


def _is_worth_a_response(step: Step) -> bool:
    return step.finished or any(piece.text or piece.finish_reason for piece in step.pieces)


def _drain(waiting: deque[Step]) -> list[Step]:
    return [waiting.popleft() for _ in range(len(waiting))]
