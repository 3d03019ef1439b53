"""What RBLN NPUs can't run, by the release of the SDK, checked before anything is loaded.

Source: the RBLN SDK documentation 0.12, "Speculative Decoding" (known incompatibilities) and "Model implementations";
the plugin vllm-rbln 0.12.0 refuses the same, later.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field

from rbln_vllm_backend.errors import Fault
from rbln_vllm_backend.speculation import Speculation
from rbln_vllm_backend.values import Switch

_OPTIMUM = ("transformers", "optimum")


@dataclass
class Ruling:
    """Engine flags that a rule sets, what the log says of it, and what no rule can mend."""

    flags: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def is_platform(chosen: str) -> bool:
    """Whether the engine will run on RBLN NPUs: ``serving.platform`` says so, or plugin and compiler are there."""
    if chosen != "auto":
        return chosen == "rbln"
    return all(importlib.util.find_spec(module) is not None for module in ("vllm_rbln", "rebel"))


def rule(flags: Mapping[str, str], speculation: Speculation | None) -> Ruling:
    """RBLN's rules for these engine flags and this speculation."""
    ruling = Ruling()
    if speculation is not None:
        _model_implementation(flags, ruling)
        _scheduling(flags, ruling)
    _adapters({**flags, **ruling.flags}, ruling)
    return ruling


def _model_implementation(flags: Mapping[str, str], ruling: Ruling) -> None:
    given = flags.get("model_impl")
    if given in _OPTIMUM:
        ruling.faults.append(
            Fault(
                "model_impl",
                "speculative decoding needs the vllm model implementation, and the engine refuses it on this one",
                'Set model_impl to "vllm", or remove the speculation',
                given,
            )
        )
    elif given in (None, "auto"):
        ruling.flags["model_impl"] = "vllm"
        ruling.notes.append(
            "model_impl is set to vllm: speculative decoding needs it, and auto may choose the optimum implementation."
        )


def _scheduling(flags: Mapping[str, str], ruling: Ruling) -> None:
    if is_on(flags, "async_scheduling"):
        # vLLM refuses some of these pairs itself, before the plugin would turn it off.
        ruling.flags["async_scheduling"] = "false"
        ruling.notes.append(
            "async_scheduling is turned off: it feeds one sampled token a step into the next, and speculative decoding "
            "gives several. The engine runs synchronously."
        )


def _adapters(flags: Mapping[str, str], ruling: Ruling) -> None:
    if flags.get("model_impl") == "vllm" and is_on(flags, "enable_lora"):
        rule = "on RBLN NPUs LoRA works with the optimum model implementation only, and model_impl is vllm"
        remedy = "Remove enable_lora, or serve without speculation and with model_impl = transformers"
        ruling.faults.append(Fault("enable_lora", rule, remedy, flags["enable_lora"]))


def is_on(flags: Mapping[str, str], name: str) -> bool:
    """Whether a switch is given and true; a value that is neither is left to vLLM's parser, which reports it."""
    try:
        return Switch().spelled(flags.get(name, "false"))
    except ValueError:
        return False
