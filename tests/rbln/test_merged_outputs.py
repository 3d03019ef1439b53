"""vLLM 0.30 forgets a request's acceptance figures when it merges outputs for a reader that is behind."""

from __future__ import annotations

import pytest

from engine.test_merged_outputs import merged_figures
from rbln_vllm_backend import vllm_merged_outputs


def test_the_figures_of_the_last_output_survive_a_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.outputs import RequestOutput

    merge = getattr(RequestOutput.add, "forgetful", RequestOutput.add)
    monkeypatch.setattr(RequestOutput, "add", merge)
    assert merged_figures(None, "figures") is None
    for _ in range(2):
        assert vllm_merged_outputs.repair()
        assert merged_figures(None, None, "figures") == "figures"
