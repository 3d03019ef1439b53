"""config.pbtxt's parameters, sorted by who reads them, with every fault reported at once.

A parameter is one of four things: an engine flag of vLLM (``max_model_len``; the flag without its dashes), an option of
ours (``serving.…``), an environment variable (``env.NAME``), or one of Triton's own in capitals, which is left alone.
Nothing here imports vLLM: what only its parser knows is checked in ``vllm_flags``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rbln_vllm_backend import (
    adapters,
    checkpoint_fit,
    npu_groups,
    paths,
    rbln,
    rbln_options,
    rbln_platform,
    serving_options,
    speculation,
)
from rbln_vllm_backend.errors import ConfigError, Fault
from rbln_vllm_backend.rbln_platform import Platform
from rbln_vllm_backend.serving_options import ServingOptions
from rbln_vllm_backend.speculation import Speculation

ENV_PREFIX = "env."
_TRITONS_OWN = re.compile(r"[A-Z][A-Z0-9_]*")
_TRITON_READS = ("EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS")
_VARIABLES_OF_OTHERS = ("VLLM_", "RBLN_", "HF_", "TORCH_", "OMP_", "OTEL_")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOTTED_WORDS = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
# vLLM's own (``ModelImpl``, 0.30 and 0.32), which it doesn't hold the flag against; NPUs have others.
_IMPLEMENTATIONS = ("auto", "vllm", "transformers", "terratorch")
# Parameters whose value names a checkpoint.
_CHECKPOINTS = ("model", "tokenizer")


@dataclass(frozen=True)
class BackendConfig:
    """A config.pbtxt that passed every check that needs no engine."""

    engine_flags: Mapping[str, str]  # parameter as written -> its text, speculation left out
    speculation: Speculation | None
    serving: ServingOptions
    environment: Mapping[str, str]
    platform: Platform
    notes: tuple[str, ...] = ()  # what the log says of choices that are valid but worth a word
    adapters: Mapping[str, str] = field(default_factory=dict)  # LoRA adapter name -> folder or hub id


def parameters_of(model_config: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a model configuration in Triton's JSON form: name -> text."""
    parameters = model_config.get("parameters") or {}
    return {key: str(value.get("string_value", "")) for key, value in parameters.items()}


def is_tritons_own(key: str) -> bool:
    """Whether a parameter is one of Triton's, in capitals, which is left alone."""
    return _TRITONS_OWN.fullmatch(key) is not None


def read(
    parameters: Mapping[str, str], folder: Path, instance_groups: Sequence[Mapping[str, Any]] = ()
) -> BackendConfig:
    """Sorts and checks the parameters.

    Args:
        parameters: name -> text, as they stand in config.pbtxt.
        folder: the one of config.pbtxt.
        instance_groups: its ``instance_group``, in Triton's JSON form.

    Raises:
        ConfigError: with everything that is wrong.
    """
    ours = {key: text for key, text in parameters.items() if not is_tritons_own(key)}
    named = _starting_with(adapters.PREFIX, ours)
    options = {key: text for key, text in _starting_with(serving_options.PREFIX, ours).items() if key not in named}
    serving, serving_faults = serving_options.read(options, folder)
    environment, environment_faults = _environment(_starting_with(ENV_PREFIX, ours))
    environment_faults += _variables_without_prefix(parameters)
    flags, flag_faults = _engine_flags(ours, folder)
    chosen_adapters, adapter_faults = adapters.read(named, flags, folder)
    chosen, speculation_faults = speculation.read(ours, folder)
    speculation_faults += _misfits(chosen, flags)
    platform = rbln_platform.choose(serving.platform)
    ruling = _on_rbln(flags, chosen, environment) if platform.is_rbln else _elsewhere(flags, chosen, platform)
    ruling.faults += rbln_platform.faults(platform, serving.platform)
    if npu_groups.OPTION not in {fault.key for fault in serving_faults}:
        ruling.faults += npu_groups.faults(serving.npu_groups, flags, instance_groups, platform.is_rbln)
    ruling.faults += npu_groups.clashes(serving.npu_groups, environment)
    faults = [*flag_faults, *speculation_faults, *ruling.faults, *serving_faults, *adapter_faults, *environment_faults]
    if faults:
        raise ConfigError(faults)
    notes = (*(chosen.notes if chosen else ()), *ruling.notes, *_left_to_triton(parameters))
    return BackendConfig({**flags, **ruling.flags}, chosen, serving, environment, platform, notes, chosen_adapters)


def _misfits(chosen: Speculation | None, flags: Mapping[str, str]) -> list[Fault]:
    if chosen is None or "model" not in chosen.options or not flags.get("model"):
        return []
    return checkpoint_fit.misfits(chosen.options, speculation.PREFIX + "model", flags["model"])


def _on_rbln(flags: Mapping[str, str], chosen: Speculation | None, variables: Mapping[str, str]) -> rbln.Ruling:
    return rbln.rule(flags, chosen, rbln_platform.npu_name({**os.environ, **variables}))


def _elsewhere(flags: Mapping[str, str], chosen: Speculation | None, platform: Platform) -> rbln.Ruling:
    """Off RBLN vLLM itself refuses these; said here, it costs no import."""
    ruling = rbln.Ruling()
    ruling.faults += [
        Fault(key, f"an option of NPUs, and the platform is {platform}", 'Remove it, or set serving.platform to "rbln"')
        for key in flags
        if rbln_options.is_option(key)
    ]
    implementation = flags.get("model_impl", "auto")
    if implementation not in _IMPLEMENTATIONS:
        rule = "vLLM has no such model implementation, and would take another without a word"
        remedy = f"Set it to one of {', '.join(_IMPLEMENTATIONS)}"
        ruling.faults.append(Fault("model_impl", rule, remedy, implementation))
    if chosen is not None and chosen.method in speculation.SYNCHRONOUS and rbln.is_on(flags, "async_scheduling"):
        rule = f"vLLM can't schedule asynchronously with the speculative method {chosen.method}"
        ruling.faults.append(Fault("async_scheduling", rule, "Remove the parameter", flags["async_scheduling"]))
    return ruling


def _starting_with(prefix: str, parameters: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in parameters.items() if key.startswith(prefix)}


def _environment(parameters: Mapping[str, str]) -> tuple[dict[str, str], list[Fault]]:
    variables: dict[str, str] = {}
    faults: list[Fault] = []
    for key, text in parameters.items():
        name = key.removeprefix(ENV_PREFIX)
        if _VARIABLE.fullmatch(name) and "\0" not in text:
            variables[name] = text
        elif "\0" in text:
            faults.append(Fault(key, "an environment variable can't hold a NUL", "Correct the value", text))
        else:
            faults.append(Fault(key, "not the name of an environment variable", f"Write {ENV_PREFIX}NAME", text))
    return variables, faults


def _variables_without_prefix(parameters: Mapping[str, str]) -> list[Fault]:
    """Parameters in capitals are Triton's, which sets no variable by them."""
    rule = "the name of an environment variable, and as a parameter it would have no effect"
    return [
        Fault(key, rule, f"Write {ENV_PREFIX}{key}", text)
        for key, text in parameters.items()
        if is_tritons_own(key) and key.startswith(_VARIABLES_OF_OTHERS)
    ]


def _left_to_triton(parameters: Mapping[str, str]) -> list[str]:
    return [
        f"{key} is in capitals and so left to Triton; an engine flag is written small, a variable {ENV_PREFIX}{key}."
        for key in parameters
        if is_tritons_own(key) and key not in _TRITON_READS
    ]


def engine_flags_of(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters that are engine flags, unchecked, speculation left out."""
    return {
        key: text
        for key, text in parameters.items()
        if not key.startswith((serving_options.PREFIX, ENV_PREFIX))
        and not speculation.is_speculative(key)
        and not is_tritons_own(key)
    }


def _engine_flags(parameters: Mapping[str, str], folder: Path) -> tuple[dict[str, str], list[Fault]]:
    flags = engine_flags_of(parameters)
    faults = [_malformed(key, text) for key, text in flags.items() if not _DOTTED_WORDS.fullmatch(key)]
    faults += _mixed_forms(flags)
    if not flags.get("model", "").strip():
        faults.append(
            Fault("model", "the checkpoint to serve is missing", 'Set the parameter "model" to a folder or a hub id')
        )
    for key in _CHECKPOINTS:
        if flags.get(key):
            flags[key], fault = paths.resolve(key, flags[key], folder)
            faults.extend([fault] if fault else [])
    return flags, faults


def _malformed(key: str, text: str) -> Fault:
    return Fault(
        key, "not the name of a parameter", "Use an engine flag's name with _ for -, such as max_model_len", text
    )


def _mixed_forms(flags: Mapping[str, str]) -> list[Fault]:
    """A nested option given whole and by its keys: which one wins would be a guess."""
    roots = {".".join(parts[:count]) for key in flags for parts in [key.split(".")] for count in range(1, len(parts))}
    return [
        Fault(root, f"given both as one JSON and as {root}.…", "Use one of the two", flags[root])
        for root in sorted(roots & set(flags))
    ]
