"""The options of vllm-rbln 0.12.0 as a table, so that a file can be checked where the plugin is not installed.

Source: ``vllm_rbln/config.py`` of 0.12.0 (``RBLNConfig``, ``OptimumRBLNConfig``); each field is the flag
``--rbln-<name>``, here the parameter ``rbln_<name>``. ``tests/rbln`` compares the table with the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rbln_vllm_backend import strict_json
from rbln_vllm_backend.errors import Fault
from rbln_vllm_backend.values import Choice, Integer, JsonObject, Rule, Switch

PREFIX = "rbln_"


@dataclass(frozen=True)
class Integers:
    """A JSON list of whole numbers above zero."""

    words: str = "a JSON list of integers of at least 1, such as [1, 4]"

    def typed(self, value: object) -> list[int]:
        if not isinstance(value, list):
            raise ValueError
        return [Integer(minimum=1).typed(item) for item in value]

    def spelled(self, text: str) -> list[int]:
        return self.typed(_json(text) if text.lstrip().startswith("[") else [Integer().spelled(text)])


def _json(text: str) -> object:
    document: object = strict_json.decode(text)
    return document


COMMON: dict[str, Rule] = {
    "num_devices_per_local_rank": Integer(minimum=1),
    "use_custom_sampler": Switch(),
    "sub_block_size": Integer(minimum=1),
}
VLLM: dict[str, Rule] = {
    "enforce_model_fp32": Switch(),
    "use_batch_attn_opt": Switch(),
    "use_custom_kernel": Switch(),
    "use_dynamic_kv_cache": Switch(),
    "enable_sub_block_cache": Switch(),
    "specialize_moe_decode": Switch(),
    "use_moe_tokens_mask": Switch(),
    "use_all2all_dispatch": Switch(),
    "use_all2all_combine": Switch(),
    "decode_batch_bucket_strategy": Choice(("exponential", "linear", "manual")),
    "decode_batch_bucket_min": Integer(minimum=1),
    "decode_batch_bucket_step": Integer(minimum=1),
    "decode_batch_bucket_limit": Integer(minimum=1),
    "decode_batch_bucket_manual_buckets": Integers(),
    "use_w8a8": Switch(),
    "compile_dtype": Choice(("float16", "bfloat16")),
}
OPTIMUM: dict[str, Rule] = {"optimum_overrides": JsonObject()}


def is_option(key: str) -> bool:
    """Whether a parameter is one of the plugin's own flags."""
    return key.startswith(PREFIX)


def faults(flags: Mapping[str, str], implementation: str | None) -> list[Fault]:
    """Unknown options, wrong values, and options of the other model implementation.

    Args:
        flags: the engine flags; others are passed over.
        implementation: "vllm", "optimum", or None where the engine will choose.
    """
    found = []
    for key, text in flags.items():
        if is_option(key):
            found += _fault_of(key, text, implementation)
    return found


def _fault_of(key: str, text: str, implementation: str | None) -> list[Fault]:
    name = key.removeprefix(PREFIX)
    other, owner = (OPTIMUM, "optimum") if implementation == "vllm" else (VLLM, "vllm")
    if implementation is not None and name in other:
        rule = f"the option belongs to the {owner} implementation, and model_impl is {implementation}"
        return [Fault(key, rule, "Remove it, or change model_impl", text)]
    rule_of = {**COMMON, **VLLM, **OPTIMUM}
    if name not in rule_of:
        listed = ", ".join(sorted(rule_of))
        return [Fault(key, "no such option of vllm-rbln 0.12", f"Known, each after {PREFIX}: {listed}", text)]
    try:
        rule_of[name].spelled(text)
    except ValueError:
        return [Fault(key, f"must be {rule_of[name].words}", "Correct the value", text)]
    return []
