"""An engine's own metrics, read on a timer; what changed is handed to the server's metrics.

A server's counter can only go up and its histogram only observe, so a histogram's bucket, sum and count series go as
counters with the label ``le``. A value that falls, or whose series began anew, belongs to an engine that was started
again, and is added whole: the server's series are sums over the engine's lives.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

_log = logging.getLogger(__name__)

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTANCE_RATE = "rbln_vllm:spec_decode_acceptance_rate"
MEAN_ACCEPTANCE_LENGTH = "rbln_vllm:spec_decode_mean_acceptance_length"


@dataclass(frozen=True)
class Sample:
    """One series at one moment. ``rises`` tells a counter (or a part of a histogram) from a gauge.

    ``began_s`` is when the series stood at zero, in seconds since the epoch, where the engine's registry says it.
    """

    name: str
    help: str
    rises: bool
    labels: Mapping[str, str]
    value: float
    began_s: float | None = None

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What tells this series from every other."""
        return self.name, tuple(sorted(self.labels.items()))


class Sink(Protocol):
    """The server's metrics."""

    def add(self, sample: Sample, amount: float) -> None:
        """Raises a counter by the amount, which is positive."""

    def set(self, sample: Sample) -> None:
        """Sets a gauge to the sample's value."""

    def close(self) -> None:
        """Gives every series back; nothing is added or set afterwards."""


class MetricsBridge:
    """Copies on a thread of its own, every ``interval_s`` seconds, until ``stop``."""

    def __init__(self, collect: Callable[[], Iterable[Sample]], sink: Sink, interval_s: float) -> None:
        self._collect = collect
        self._sink = sink
        self._interval_s = interval_s
        self._last: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Copies once more, ends the thread, and gives the server's series back."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sink.close()

    def copy(self) -> None:
        """Hands over what changed since the last call."""
        samples = list(self._collect())
        for sample in (*samples, *_speculation(samples)):
            key = sample.key
            last = self._last.get(key)
            if last is not None and (sample.value, sample.began_s) == (last.value, last.began_s):
                continue
            self._last[key] = sample
            if not sample.rises:
                self._sink.set(sample)
                continue
            goes_on = last is not None and sample.began_s == last.began_s and sample.value >= last.value
            # At zero too, so that a series is there before its first event.
            self._sink.add(sample, sample.value - (last.value if last is not None and goes_on else 0.0))

    def _run(self) -> None:
        try:
            self.copy()
            while not self._stopped.wait(self._interval_s):
                self.copy()
            self.copy()
        except Exception:
            _log.exception("The engine's metrics can't be copied any more")


def _speculation(samples: Iterable[Sample]) -> Iterable[Sample]:
    """What the counters of speculation say over the engine's life; safe at zero."""
    totals = {DRAFTS: 0.0, DRAFT_TOKENS: 0.0, ACCEPTED_TOKENS: 0.0}
    labels: Mapping[str, str] | None = None
    for sample in samples:
        if sample.name in totals:
            totals[sample.name] += sample.value
            labels = sample.labels
    if labels is None:
        return
    accepted, drafted, drafts = totals[ACCEPTED_TOKENS], totals[DRAFT_TOKENS], totals[DRAFTS]
    rate = accepted / drafted if drafted else 0.0
    length = 1.0 + accepted / drafts if drafts else 1.0
    yield Sample(ACCEPTANCE_RATE, "Accepted draft tokens / drafted tokens.", False, labels, rate)
    yield Sample(MEAN_ACCEPTANCE_LENGTH, "Tokens per drafting step, the target's own included.", False, labels, length)
