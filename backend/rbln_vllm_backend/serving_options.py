"""Our own options: the parameters that start with ``serving.``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rbln_vllm_backend import values
from rbln_vllm_backend.errors import Fault
from rbln_vllm_backend.values import Choice, Integer, Names, Number, Rule, Switch

PREFIX = "serving."


def _option(default: Any, rule: Rule, meaning: str) -> Any:
    return field(default=default, metadata={"rule": rule, "meaning": meaning})


@dataclass(frozen=True)
class ServingOptions:
    """How requests are served; each field is the parameter ``serving.<field>``."""

    platform: str = _option(
        "auto", Choice(("auto", "rbln", "cpu")), "whose rules apply; auto: rbln where vllm-rbln and its compiler are"
    )
    warmup: bool = _option(True, Switch(), "one short request runs through the engine before the model is ready")
    ignored_parameters: tuple[str, ...] = _option(
        ("id",), Names(), "request parameters that are passed over, since Triton or a proxy adds them"
    )
    max_inflight_requests: int | None = _option(
        None, Integer(minimum=1), "requests accepted at once; further ones get UNAVAILABLE (default: no limit)"
    )
    cancel_poll_interval_s: float = _option(
        0.1, Number(above=0, maximum=60), "how often cancelled requests are looked for"
    )
    metrics_interval_s: float = _option(
        2.0, Number(minimum=0, maximum=3600), "how often the engine's metrics are copied to the server's; 0: never"
    )
    drain_timeout_s: float = _option(
        20.0,
        Number(minimum=0),
        "how long open requests may go on after an unload or a shutdown began; keep it below Triton's exit timeout",
    )


RULES: dict[str, Rule] = {PREFIX + item.name: item.metadata["rule"] for item in fields(ServingOptions)}


def read(parameters: Mapping[str, str]) -> tuple[ServingOptions, list[Fault]]:
    """The options from the parameters that start with ``serving.``, and every fault in them."""
    chosen: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, text in parameters.items():
        rule = RULES.get(key)
        if rule is None:
            faults.append(Fault(key, "no such option", f"Known: {', '.join(_nearest(key))}", text))
            continue
        try:
            chosen[key.removeprefix(PREFIX)] = values.read(rule, text)
        except ValueError:
            faults.append(Fault(key, f"must be {rule.words}", "Correct the value or remove the parameter", text))
    return ServingOptions(**chosen), faults


def _nearest(key: str) -> list[str]:
    names = [item.name for item in fields(ServingOptions)]
    near = difflib.get_close_matches(key.removeprefix(PREFIX), names, n=3) or sorted(names)
    return [PREFIX + name for name in near]
