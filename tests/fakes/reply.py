"""A client's answer that records what it gets."""

from __future__ import annotations

import threading

from rbln_vllm_backend.engine import Step
from rbln_vllm_backend.errors import RequestError


class RecordingReply:
    """Implements ``stream.Reply``; ``final`` is set by each FINAL, and ``finals`` counts them."""

    def __init__(self, fail_on_send: Exception | None = None) -> None:
        self.steps: list[Step] = []
        self.errors: list[RequestError] = []
        self.finals = 0
        self.after_final = 0
        self.cancelled = False
        self.asked_after_final = 0
        self.threads: set[int] = set()
        self.final = threading.Event()
        self._fail_on_send = fail_on_send

    def send(self, step: Step) -> None:
        if self._fail_on_send is not None:
            raise self._fail_on_send
        self._count(step.finished)
        self.steps.append(step)

    def fail(self, error: RequestError) -> None:
        self._count(True)
        self.errors.append(error)

    def is_cancelled(self) -> bool:
        self.threads.add(threading.get_ident())
        self.asked_after_final += self.finals > 0
        return self.cancelled

    def _count(self, final: bool) -> None:
        self.threads.add(threading.get_ident())
        self.after_final += self.finals > 0
        self.finals += final
        if final:
            self.final.set()

    @property
    def text(self) -> str:
        return "".join(piece.text for step in self.steps for piece in step.pieces)

    @property
    def tokens(self) -> int:
        return sum(piece.num_tokens for step in self.steps for piece in step.pieces)
