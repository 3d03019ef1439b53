"""Our own options: the parameters that start with ``serving.``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rbln_vllm_backend import paths, prompts, values
from rbln_vllm_backend.errors import Fault
from rbln_vllm_backend.npu_groups import GroupsRule
from rbln_vllm_backend.structured_outputs import CONSTRAINTS
from rbln_vllm_backend.values import Choice, Integer, JsonObject, Names, NamesOf, Number, Rule, Switch, Text, ZeroOr

PREFIX = "serving."


def option(default: Any, rule: Rule, meaning: str, unset: str = "no limit") -> Any:
    """A field of a class of options: its default, its rule, what it means; ``unset`` says what None stands for."""
    metadata = {"rule": rule, "meaning": meaning, "unset": unset}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class ServingOptions:
    """How requests are served; each field is the parameter ``serving.<field>``."""

    platform: str = option(
        "auto", Choice(("auto", "rbln", "cpu")), "where the engine runs; auto: on NPUs where vllm-rbln is installed"
    )
    npu_groups: tuple[tuple[int, ...], ...] | None = option(
        None, GroupsRule(), "NPUs of each Triton instance: numbers with commas, groups with semicolons", unset="none"
    )
    warmup: bool = option(True, Switch(), "short requests run through the engine before the model is ready")
    ignored_parameters: tuple[str, ...] = option(
        ("id",), Names(), "request parameters that are passed over, since Triton or a proxy adds them"
    )
    max_inflight_requests: int | None = option(
        None, Integer(minimum=1), "requests accepted at once; further ones get UNAVAILABLE (default: no limit)"
    )
    max_prompt_tokens: int | None = option(
        None, Integer(minimum=1), "tokens that a prompt may have", unset="the context's"
    )
    max_tokens_cap: int | None = option(
        None, Integer(minimum=1), "new tokens of a sequence: max_tokens may not ask for more, and without it this holds"
    )
    max_n: int = option(16, Integer(minimum=1, maximum=16384), "sequences that one request may ask for")
    max_request_bytes: int = option(16 * 2**20, Integer(minimum=1024), "bytes of a request's inputs together")
    structured_outputs: tuple[str, ...] = option(
        tuple(CONSTRAINTS), NamesOf(tuple(CONSTRAINTS)), "constraints that a request may set on its text"
    )
    default_timeout_s: float | None = option(
        None, Number(above=0, maximum=604_800), "deadline of a request that brings none, in seconds", unset="none"
    )
    chat_template: str | None = option(
        None, Text(), "template for messages: its text, or a file relative to config.pbtxt", unset="the checkpoint's"
    )
    default_chat_template_kwargs: Mapping[str, Any] = option(
        {}, JsonObject(), "what the chat template is told; a request's chat_template_kwargs go over it"
    )
    cancel_poll_interval_s: float = option(
        0.1, Number(minimum=0.001, maximum=60), "how often cancelled requests are looked for"
    )
    metrics_interval_s: float = option(
        2.0,
        ZeroOr(Number(minimum=0.01, maximum=3600)),
        "how often the engine's metrics are copied to the server's; 0: never",
    )
    allow_cancel_by_id: bool = option(
        False, Switch(), "any client may cancel a request of this instance by its Triton request id"
    )
    engine_restarts: int = option(
        3, Integer(minimum=0), "how often in 10 minutes an engine that died is started again; then the model stays down"
    )
    engine_stall_s: float = option(
        300.0,
        ZeroOr(Number(minimum=5)),
        "an engine that makes no step for so long, while requests run, counts as dead; 0: it never does",
    )
    drain_timeout_s: float = option(
        20.0,
        Number(minimum=0),
        "how long open requests may go on after an unload or a shutdown began; keep it below Triton's exit timeout",
    )


def rules_of(kind: type) -> dict[str, Rule]:
    """The rules of a class of options: parameter -> rule."""
    return {PREFIX + item.name: item.metadata["rule"] for item in fields(kind)}


RULES = rules_of(ServingOptions)


def read(parameters: Mapping[str, str], folder: Path) -> tuple[ServingOptions, list[Fault]]:
    """The options from the parameters that start with ``serving.``, and every fault in them.

    A chat template that is a file is read from ``folder``.
    """
    chosen, faults = read_values(RULES, parameters)
    template = chosen.get("chat_template")
    if template is not None and "{" not in template:  # every template has a brace, and no sane path
        chosen["chat_template"], fault = _template_file(template, folder)
        faults.extend([fault] if fault else [])
    kwargs = "default_chat_template_kwargs"
    if kwargs in chosen and (rule := prompts.template_kwargs_rule(chosen[kwargs])):
        faults.append(Fault(PREFIX + kwargs, rule, "Correct the object", parameters[PREFIX + kwargs]))
    return ServingOptions(**chosen), faults


def read_values(rules: Mapping[str, Rule], parameters: Mapping[str, str]) -> tuple[dict[str, Any], list[Fault]]:
    """The values of options (without ``serving.``) by their rules, and every fault in them."""
    chosen: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, text in parameters.items():
        rule = rules.get(key)
        if rule is None:
            faults.append(Fault(key, "no such option", f"Known: {', '.join(_nearest(key, rules))}", text))
            continue
        try:
            chosen[key.removeprefix(PREFIX)] = values.read(rule, text)
        except ValueError:
            faults.append(Fault(key, f"must be {rule.words}", "Correct the value or remove the parameter", text))
    return chosen, faults


def _template_file(name: str, folder: Path) -> tuple[str | None, Fault | None]:
    try:
        return (folder / Path(name).expanduser()).read_text(encoding="utf-8"), None
    except (OSError, RuntimeError, ValueError) as error:
        remedy = "Name a file that the server can read, relative to config.pbtxt, or give the template's text"
        return None, Fault(PREFIX + "chat_template", f"can't be read ({paths.refusal(error)})", remedy, name)


def limits(options: ServingOptions) -> str:
    """What is refused beyond, for the line of a load."""
    chosen = {name: value for name, value in vars(options).items() if name.startswith("max_") and value is not None}
    return ", ".join(f"{PREFIX}{name} = {value}" for name, value in chosen.items())


def _nearest(key: str, rules: Mapping[str, Rule]) -> list[str]:
    names = [known.removeprefix(PREFIX) for known in rules]
    near = difflib.get_close_matches(key.removeprefix(PREFIX), names, n=3) or sorted(names)
    return [PREFIX + name for name in near]
