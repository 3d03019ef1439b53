"""The port to an engine: what the service needs of one, and the values that cross.

``vllm_engine`` implements it over vLLM, ``tests/fakes`` over a script. Every value here is frozen: it crosses threads.
``Piece`` and ``Step`` are made for every token: a struct of msgspec takes a fifth of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from rbln_vllm_backend.metrics_bridge import Sample


@dataclass(frozen=True)
class Chat:
    """A prompt as chat messages (objects with a role), and what the chat template is told beside them."""

    messages: Sequence[Mapping[str, Any]]
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenIds:
    """A prompt as token ids, not yet held against the vocabulary."""

    ids: Sequence[int]


@dataclass(frozen=True)
class Illustrated:
    """A prompt as text with images, each the bytes of a file (PNG, JPEG, …)."""

    text: str
    images: Sequence[bytes]


Prompt = str | Chat | TokenIds | Illustrated


@dataclass(frozen=True)
class Embedding:
    """The prompt's vector is wanted, with so many dimensions (None: all that the checkpoint gives), instead of text."""

    dimensions: int | None = None


@dataclass(frozen=True)
class Generation:
    """What the engine is asked to do for one request.

    ``request_id`` is ours and unique. ``sampling`` holds only what the client set, typed and checked.
    With ``stream`` the engine answers a step at a time, else once with the whole. ``adapter`` names a LoRA adapter of
    the configuration. A lower ``priority`` is served earlier, where the engine schedules by priority. With
    ``embedding`` there is one step, whose text is the vector as a JSON list. ``trace_headers`` are the parent of the
    engine's span, where it traces.
    """

    request_id: str
    prompt: Prompt
    sampling: Mapping[str, Any]
    stream: bool
    adapter: str | None = None
    priority: int = 0
    embedding: Embedding | None = None
    trace_headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenLogprob:
    """One candidate for a position: natural logarithm of its probability, its rank (1 is likeliest), its text."""

    logprob: float
    rank: int | None
    decoded_token: str | None


@dataclass(frozen=True)
class SpeculationCounts:
    """What speculation did for one request: drafting steps, tokens drafted, tokens accepted.

    Without speculation in the engine ``configured`` is false and every number is zero.
    """

    steps: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    configured: bool = True

    def __add__(self, other: SpeculationCounts) -> SpeculationCounts:
        return SpeculationCounts(
            self.steps + other.steps,
            self.draft_tokens + other.draft_tokens,
            self.accepted_tokens + other.accepted_tokens,
            self.configured or other.configured,
        )

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted tokens, 0 when nothing was drafted."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per drafting step, the target's own included: 1 + accepted / steps, as vLLM counts it."""
        if not self.configured:
            return 0.0
        return 1.0 + (self.accepted_tokens / self.steps if self.steps else 0.0)


class Piece(msgspec.Struct, frozen=True):
    """What one sequence gained since its last piece; ``finish_reason`` is set on its last one.

    ``logprobs`` has one mapping (token id -> candidate) for each new token. ``cumulative_logprob`` covers the sequence
    so far. ``speculation`` comes with the last piece, and only when the engine counted it. ``stop_reason`` is the stop
    string or stop token that ended the sequence. ``token_ids`` are the new tokens.
    """

    index: int
    text: str
    num_tokens: int
    finish_reason: str | None = None
    cumulative_logprob: float | None = None
    logprobs: tuple[Mapping[int, TokenLogprob], ...] | None = None
    speculation: SpeculationCounts | None = None
    stop_reason: str | int | None = None
    token_ids: Sequence[int] = ()


class Step(msgspec.Struct, frozen=True):
    """What one engine step gave one request: a piece for each sequence that moved.

    ``num_cached_tokens`` says how many of the prompt's tokens were in the prefix cache, where the engine knows.
    """

    pieces: tuple[Piece, ...]
    num_input_tokens: int
    finished: bool
    num_cached_tokens: int | None = None


class Engine(Protocol):
    """An engine that was started: it generates until it is stopped or dies. After ``stop`` it may be started again."""

    def start(self) -> str:
        """Loads the checkpoint; blocks until the engine can serve. Returns a line that describes it, for the log.

        The first time it is called on the main thread, before any thread of ours exists: the engine's process may be a
        fork. Afterwards on a thread that outlives the engine, whose processes end with it.

        Raises:
            ConfigError, EngineStartError: nothing is left running.
        """

    def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """The steps of one request, the last with ``finished``; closing the iterator aborts the request.

        Raises (while iterating):
            RequestError: this request can't be served.
            EngineDown: no request can.
        """

    def failure(self) -> str | None:
        """Why the engine can serve no request any more, None while it can; quick, from any thread."""

    def progress(self) -> object | None:
        """A value that differs after every step of the engine; None if it doesn't count its steps. From any thread."""

    def metrics(self) -> Iterable[Sample]:
        """The engine's own metrics as they are now; read from a thread that is not the loop's."""

    def stop(self) -> None:
        """Ends the engine and its processes; open iterators raise. May be called twice, and after a failed start.

        Called by another thread during ``start``, it makes that one fail soon.
        """
