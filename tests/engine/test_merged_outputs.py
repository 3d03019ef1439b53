"""Outputs that vLLM merges for a reader that is behind keep the acceptance figures of the last one."""

from __future__ import annotations

from typing import Any

from rbln_vllm_backend import vllm_merged_outputs


def merged_figures(*figures: object) -> object:
    """What is left of the figures of one output after the other, all of one sequence."""
    from vllm.outputs import CompletionOutput, RequestOutput

    def output(metrics: Any) -> Any:
        completion = CompletionOutput(0, "a", [1], None, None, spec_decode_metrics=metrics)
        return RequestOutput("r", None, [1], None, [completion], finished=metrics is not None)

    first, *others = map(output, figures)
    for other in others:
        first.add(other, aggregate=True)
    return first.outputs[0].spec_decode_metrics


def test_this_version_keeps_them_itself() -> None:
    assert not vllm_merged_outputs.repair()
    assert merged_figures(None, None, "figures") == "figures"
