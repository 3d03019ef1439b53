"""Triton's metrics as the sink of the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb_utils

from rbln_vllm_backend.metrics_bridge import Sample


class TritonMetrics:
    """One family for each name and one series for each set of labels, made when first needed. Implements ``Sink``.

    ``labels`` are added to every series: they tell the models and instances of one server apart.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._families: dict[str, Any] = {}
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}

    @staticmethod
    def are_on() -> bool:
        """Whether the server has metrics at all (``--allow-metrics=false`` turns them off)."""
        try:
            pb_utils.MetricFamily(
                name="rbln_vllm:probe", description="Made and dropped at once.", kind=pb_utils.MetricFamily.GAUGE
            )
        except Exception:
            return False
        return True

    def add(self, sample: Sample, amount: float) -> None:
        """See ``metrics_bridge.Sink.add``."""
        self._one(sample).increment(amount)

    def set(self, sample: Sample) -> None:
        """See ``metrics_bridge.Sink.set``."""
        self._one(sample).set(sample.value)

    def close(self) -> None:
        """Series first, families after: the server crashes on a series whose family has gone."""
        self._series.clear()
        self._families.clear()

    def _one(self, sample: Sample) -> Any:
        key = sample.key
        if key not in self._series:
            family = self._families.get(sample.name)
            if family is None:
                kind = pb_utils.MetricFamily.COUNTER if sample.rises else pb_utils.MetricFamily.GAUGE
                family = pb_utils.MetricFamily(name=sample.name, description=sample.help, kind=kind)
                self._families[sample.name] = family
            self._series[key] = family.Metric(labels={**sample.labels, **self._labels})
        return self._series[key]
