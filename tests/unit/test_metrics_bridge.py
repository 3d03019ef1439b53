"""What changed in the engine's metrics arrives at the server's, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from rbln_vllm_backend import metrics_bridge
from rbln_vllm_backend.metrics_bridge import MetricsBridge, Sample


@dataclass
class RecordingSink:
    """Implements ``Sink``; ``values`` are what the server would show, ``calls`` counts the exchanges."""

    values: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    closed: bool = False

    def add(self, sample: Sample, amount: float) -> None:
        assert amount >= 0
        self.calls += 1
        name = sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items()))
        self.values[name] = self.values.get(name, 0.0) + amount

    def set(self, sample: Sample) -> None:
        self.calls += 1
        self.values[sample.name] = sample.value

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


def counter(value: float, name: str = "vllm:x_total", **labels: str) -> Sample:
    return Sample(name, "", True, labels, value)


def gauge(value: float) -> Sample:
    return Sample("vllm:g", "", False, {}, value)


def copied(sink: RecordingSink, *rounds: list[Sample]) -> dict[str, float]:
    turns = iter(rounds)
    bridge = MetricsBridge(lambda: next(turns), sink, 1.0)
    for _ in rounds:
        bridge.copy()
    return sink.values


def test_a_counter_arrives_whole_in_several_rounds(sink: RecordingSink) -> None:
    assert copied(sink, [counter(3)], [counter(3)], [counter(10)]) == {"vllm:x_total": 10}
    assert sink.calls == 2  # only what changed


def test_a_series_is_there_before_its_first_event(sink: RecordingSink) -> None:
    assert copied(sink, [counter(0)]) == {"vllm:x_total": 0}


def test_after_a_restart_the_new_value_is_added(sink: RecordingSink) -> None:
    assert copied(sink, [counter(10)], [counter(4)], [counter(5)]) == {"vllm:x_total": 15}


def test_a_series_that_began_anew_is_added_whole_whatever_its_value(sink: RecordingSink) -> None:
    lives = [[replace(counter(value), began_s=began)] for value, began in ((3, 1.0), (3, 2.0), (9, 3.0), (10, 3.0))]
    assert copied(sink, *lives) == {"vllm:x_total": 3 + 3 + 10}


def test_a_gauge_is_set_up_and_down(sink: RecordingSink) -> None:
    assert copied(sink, [gauge(5)], [gauge(2)], [gauge(2)]) == {"vllm:g": 2}
    assert sink.calls == 2


def test_labels_tell_series_apart(sink: RecordingSink) -> None:
    values = copied(sink, [counter(1, "vllm:h_bucket", le="0.1"), counter(2, "vllm:h_bucket", le="+Inf")])
    assert values == {"vllm:h_bucket,le=0.1": 1, "vllm:h_bucket,le=+Inf": 2}


def test_acceptance_is_derived_and_safe_at_zero(sink: RecordingSink) -> None:
    def numbers(drafts: float, drafted: float, accepted: float) -> list[Sample]:
        return [
            counter(drafts, metrics_bridge.DRAFTS),
            counter(drafted, metrics_bridge.DRAFT_TOKENS),
            counter(accepted, metrics_bridge.ACCEPTED_TOKENS),
        ]

    values = copied(sink, numbers(0, 0, 0))
    assert (values[metrics_bridge.ACCEPTANCE_RATE], values[metrics_bridge.MEAN_ACCEPTANCE_LENGTH]) == (0.0, 1.0)
    values = copied(sink, numbers(4, 16, 6))
    assert (values[metrics_bridge.ACCEPTANCE_RATE], values[metrics_bridge.MEAN_ACCEPTANCE_LENGTH]) == (0.375, 2.5)


def test_without_speculation_nothing_is_derived(sink: RecordingSink) -> None:
    assert copied(sink, [gauge(1)]) == {"vllm:g": 1}


def test_stopping_copies_once_more_and_gives_the_series_back(sink: RecordingSink) -> None:
    bridge = MetricsBridge(lambda: [counter(7)], sink, 3600)
    bridge.start()
    bridge.stop()
    assert sink.values == {"vllm:x_total": 7}
    assert sink.closed
