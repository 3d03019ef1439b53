"""The Grafana dashboard asks for nothing that isn't there: its metrics are vLLM's, as recorded, and our own two."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rbln_vllm_backend import metrics_bridge

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "rbln-vllm-backend.json").read_text())
OURS = {metrics_bridge.ACCEPTANCE_RATE, metrics_bridge.MEAN_ACCEPTANCE_LENGTH}


def expressions() -> list[str]:
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.extend(node[key] for key in ("expr", "query") if isinstance(node.get(key), str))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(DASHBOARD)
    return found


def named() -> set[str]:
    return {name for text in expressions() for name in re.findall(r"\b(?:rbln_)?vllm:\w+", text)}


def test_every_metric_of_the_dashboard_exists() -> None:
    # tests/engine/test_metric_names.py holds the recorded names against the installed vLLM.
    recorded = set((ROOT / "tests" / "vllm_metrics.txt").read_text().split())
    assert named() <= recorded | OURS


def test_the_dashboard_shows_speculation_first_and_all_of_it() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows[0] == "Speculative decoding"
    totals = {metrics_bridge.DRAFTS, metrics_bridge.DRAFT_TOKENS, metrics_bridge.ACCEPTED_TOKENS}
    assert totals | OURS <= named()


def test_every_panel_has_a_place_of_its_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(places)) == len(places)
