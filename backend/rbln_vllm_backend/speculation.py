"""Speculative decoding: the methods, their keys, and every check that needs no engine.

Sources: "Speculative Decoding" of the RBLN SDK documentation 0.12 for the six methods and what they need;
``SpeculativeConfig`` of vLLM 0.30 and 0.32 for keys, types and ranges. vLLM's command-line parser passes the values
below ``speculative_config`` unchecked, so they are typed here.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rbln_vllm_backend import paths, strict_json
from rbln_vllm_backend.errors import Fault
from rbln_vllm_backend.values import Choice, Integer, Number, Rule, Switch, Text

ROOT = "speculative_config"
PREFIX = ROOT + "."
_SHORT = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}


@dataclass(frozen=True)
class Method:
    """What one way of drafting needs. ``draft`` is "required", "none" or "optional"."""

    draft: str
    keys: frozenset[str] = frozenset()
    package: tuple[str, str] | None = None  # module to find, requirement to install


_SHARED: dict[str, Rule] = {
    "num_speculative_tokens": Integer(minimum=1),
    "rejection_sample_method": Choice(("standard", "synthetic", "block")),
}
_DRAFT: dict[str, Rule] = {
    "draft_tensor_parallel_size": Integer(minimum=1),
    "quantization": Text(),
    "max_model_len": Integer(minimum=1),
    "revision": Text(),
    "code_revision": Text(),
    "enforce_eager": Switch(),
    "moe_backend": Text(),
    "attention_backend": Text(),
    "kv_cache_dtype": Text(),
    "disable_padded_drafter_batch": Switch(),
    "use_local_argmax_reduction": Switch(),
    "use_heterogeneous_vocab": Switch(),
    "parallel_drafting": Switch(),
    "draft_sample_method": Choice(("greedy", "probabilistic")),
}
_NGRAM: dict[str, Rule] = {
    "prompt_lookup_min": Integer(minimum=1),
    "prompt_lookup_max": Integer(minimum=1),
}
_SUFFIX: dict[str, Rule] = {
    "suffix_decoding_max_tree_depth": Integer(minimum=1),
    "suffix_decoding_max_cached_requests": Integer(minimum=0),
    "suffix_decoding_max_spec_factor": Number(minimum=0),
    "suffix_decoding_min_token_prob": Number(minimum=0, maximum=1),
}
_RULES: dict[str, Rule] = {"method": Text(), "model": Text(), **_SHARED, **_DRAFT, **_NGRAM, **_SUFFIX}

DOCUMENTED: dict[str, Method] = {
    "ngram": Method("none", frozenset(_NGRAM)),
    "suffix": Method("none", frozenset(_SUFFIX), ("arctic_inference", "arctic-inference==0.1.1")),
    "eagle": Method("required", frozenset(_DRAFT)),
    "eagle3": Method("required", frozenset(_DRAFT)),
    "medusa": Method("required", frozenset(_DRAFT)),
    "mtp": Method("none", frozenset(_DRAFT)),
}
# Methods that vLLM 0.30 and 0.32 run with synchronous scheduling only.
SYNCHRONOUS = frozenset({"ngram", "suffix", "medusa"})
# The rejection sampler of vLLM 0.30 and 0.32 (MAX_SPEC_LEN) fails on a longer draft, and the engine ends with it.
_MOST_DRAFT_TOKENS = 128
_TREE_DEPTH = 24  # vLLM's default; without num_speculative_tokens the longest draft of suffix
# Methods of vLLM that RBLN's documentation doesn't list: passed on, with a warning.
_OTHER_DRAFT = frozenset({"draft_model", "mlp_speculator", "dflash", "dspark"})
_OTHER = _OTHER_DRAFT | {"ngram_gpu", "custom_class", "extract_hidden_states"}


@dataclass(frozen=True)
class Speculation:
    """A checked ``speculative_config``: ``options`` are its keys with typed values, ``method`` among them."""

    method: str
    options: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def longest_draft(self) -> tuple[str, int]:
        """The key that says how many tokens a draft may have, and the number."""
        return _longest_draft(self.options)

    def as_json(self) -> str:
        """The value of ``--speculative-config``."""
        return msgspec.json.encode(dict(self.options)).decode()


@dataclass
class _Reading:
    """The options that were read so far, under the parameter that gave each, and what is wrong with them."""

    values: dict[str, object] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    spelled: bool = True
    faults: list[Fault] = field(default_factory=list)

    def blame(self, name: str, rule: str, remedy: str) -> None:
        self.faults.append(Fault(self.sources.get(name, PREFIX + name), rule, remedy, self.values.get(name)))


def is_speculative(key: str) -> bool:
    """Whether a parameter belongs to speculation, in any of its three forms."""
    return key == ROOT or key.startswith(PREFIX) or key in _SHORT


def read(parameters: Mapping[str, str], folder: Path) -> tuple[Speculation | None, list[Fault]]:
    """Every parameter that speaks of speculation, in one checked object; None without any.

    Three forms say the same and meet the same checks: flat keys (``speculative_config.method``), one JSON
    (``speculative_config``), and ``spec_method``, ``spec_model``, ``spec_tokens``. ``folder`` is config.pbtxt's.
    """
    reading = _gather({key: text for key, text in parameters.items() if is_speculative(key)})
    if reading.faults or not reading.values:
        return None, reading.faults
    method = _method(reading)
    if method is None:
        return None, reading.faults
    name = str(reading.values["method"])
    options = _typed(reading, name, method)
    _check_presence(reading, name, method)
    _check_lookup(reading, options)
    _check_length(reading, options)
    _check_draft_path(reading, options, folder)
    _check_package(reading, name, method)
    if reading.faults:
        return None, reading.faults
    return Speculation(name, options, tuple(_notes(name, options))), []


def _gather(parameters: Mapping[str, str]) -> _Reading:
    """The three forms brought to one; mixing them is a fault."""
    forms = {_form(key) for key in parameters}
    reading = _Reading()
    if len(forms) > 1:
        rule = f"speculation is given in {len(forms)} forms at once ({', '.join(sorted(parameters))})"
        reading.faults.append(Fault(ROOT, rule, f"Use the flat keys {PREFIX}… alone"))
        return reading
    if ROOT in parameters:
        return _from_json(parameters[ROOT])
    for key, text in parameters.items():
        name = _SHORT.get(key, key.removeprefix(PREFIX))
        reading.values[name], reading.sources[name] = text, key
    return reading


def _form(key: str) -> str:
    return "short" if key in _SHORT else "json" if key == ROOT else "flat"


def _from_json(text: str) -> _Reading:
    reading = _Reading(spelled=False)
    try:
        document = strict_json.decode(text)
    except ValueError as error:
        fault = Fault(ROOT, f"not valid JSON ({error})", f"Mend it, or use flat keys such as {PREFIX}method", text)
        reading.faults.append(fault)
        return reading
    if not isinstance(document, dict) or not document:
        reading.faults.append(
            Fault(ROOT, "must be a JSON object with at least a method", 'Write {"method": "ngram", …}', text)
        )
        return reading
    reading.values = document
    reading.sources = {name: PREFIX + name for name in document}
    return reading


def _method(reading: _Reading) -> Method | None:
    value = reading.values.get("method")
    listed = ", ".join(DOCUMENTED)
    if value is None:
        reading.blame("method", "the method is missing, and none is guessed", f"Set it to one of {listed}")
        return None
    if isinstance(value, str):
        if value in DOCUMENTED:
            return DOCUMENTED[value]
        if value in _OTHER or value.endswith("_mtp"):
            return Method("required" if value in _OTHER_DRAFT else "optional", frozenset(_RULES))
    near = _nearest(str(value).lower().strip("[]\"' "), DOCUMENTED)
    reading.blame("method", f"no such method{near}", f"Set it to one of {listed}")
    return None


def _typed(reading: _Reading, method_name: str, method: Method) -> dict[str, Any]:
    """The options with their types; unknown, misplaced and mistyped ones become faults."""
    allowed = {"method", "model", *_SHARED, *method.keys}
    options: dict[str, Any] = {}
    for name, value in reading.values.items():
        if name not in allowed:
            _blame_unknown(reading, name, method_name, allowed)
            continue
        rule = _RULES[name]
        try:
            spelled = reading.spelled and isinstance(value, str)
            options[name] = rule.spelled(str(value)) if spelled else rule.typed(value)
        except ValueError:
            reading.blame(name, f"must be {rule.words}", "Correct the value")
    return options


def _blame_unknown(reading: _Reading, name: str, method_name: str, allowed: Iterable[str]) -> None:
    owners = [other for other, method in DOCUMENTED.items() if name in method.keys]
    if owners:
        rule = f"the key belongs to the method {' or '.join(owners)}, and the method is {method_name}"
        reading.blame(name, rule, "Remove it, or change the method")
        return
    remedy = f"{method_name} takes {', '.join(sorted(set(allowed) - {'method'}))}; sampling belongs in the request"
    reading.blame(name, f"no such key{_nearest(name, allowed)}", remedy)


def _check_presence(reading: _Reading, name: str, method: Method) -> None:
    has_draft = "model" in reading.values
    if method.draft == "required" and not has_draft:
        rule = f"{name} drafts with a checkpoint of its own, and none is given"
        reading.blame("model", rule, f"Set {PREFIX}model to a draft that was made for this target")
    if method.draft == "none" and has_draft:
        reading.blame("model", f"{name} takes no draft checkpoint", "Remove it, or choose eagle, eagle3 or medusa")
    if "num_speculative_tokens" not in reading.values and name != "suffix":
        rule = "the number of tokens to draft in a step is missing"
        reading.blame("num_speculative_tokens", rule, f'Set {PREFIX}num_speculative_tokens, for example to "3"')


def _check_lookup(reading: _Reading, options: Mapping[str, Any]) -> None:
    low, high = options.get("prompt_lookup_min"), options.get("prompt_lookup_max")
    if low is not None and high is not None and low > high:
        rule = f"is above {PREFIX}prompt_lookup_max = {high}"
        reading.blame("prompt_lookup_min", rule, "Lower it, or raise prompt_lookup_max")


def _check_length(reading: _Reading, options: Mapping[str, Any]) -> None:
    name, longest = _longest_draft(options)
    if longest > _MOST_DRAFT_TOKENS:
        rule = f"vLLM checks at most {_MOST_DRAFT_TOKENS} draft tokens in a step, and its engine ends on more"
        reading.blame(name, rule, f"Set it to {_MOST_DRAFT_TOKENS} at most")


def _longest_draft(options: Mapping[str, Any]) -> tuple[str, int]:
    name = "num_speculative_tokens"
    if name not in options:
        name = "suffix_decoding_max_tree_depth"
    return name, int(options.get(name, _TREE_DEPTH))


def _check_draft_path(reading: _Reading, options: dict[str, Any], folder: Path) -> None:
    if "model" in options:
        options["model"], fault = paths.resolve(reading.sources["model"], options["model"], folder)
        reading.faults.extend([fault] if fault else [])


def _check_package(reading: _Reading, name: str, method: Method) -> None:
    if method.package and importlib.util.find_spec(method.package[0]) is None:
        rule = f"{name} needs the package {method.package[1]}, which isn't installed"
        reading.blame("method", rule, f"Install it with `pip install {method.package[1]}`")


def _notes(name: str, options: Mapping[str, Any]) -> Iterable[str]:
    """What the log says of a speculation that is valid but worth a word."""
    if name not in DOCUMENTED:
        yield f"The speculative method {name} is not verified on RBLN NPUs."
    if "num_speculative_tokens" not in options:
        _, depth = _longest_draft(options)
        yield f"{PREFIX}num_speculative_tokens is not set: suffix drafts up to its tree depth, {depth} tokens a step."


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
