"""What RBLN NPUs can't run, by the release of the SDK, checked before anything is loaded.

Sources: the RBLN SDK documentation 0.12, "Speculative Decoding" (known incompatibilities) and "Model implementations";
vllm-rbln 0.12.0, which refuses the same later: some of it only when the weights are loaded
(``RBLNModelRunner.__init__`` for the methods, ``estimate_available_memory`` for NPUs of a rank), some at the first long
draft (``RBLNRejectionSampler``), ATOM at once (``config._reject_disabled_model_impl``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rbln_vllm_backend import npu_groups, rbln_options, strict_json
from rbln_vllm_backend.errors import Fault
from rbln_vllm_backend.speculation import DOCUMENTED, PREFIX, Speculation
from rbln_vllm_backend.values import Switch

_OPTIMUM = ("transformers", "optimum")
_IMPLEMENTATIONS = ("auto", "vllm", *_OPTIMUM)
_ATOM = "RBLN-CA"
_REBEL = "RBLN-CR"
_PER_RANK = "rbln_num_devices_per_local_rank"
# Beyond the documented methods the plugin's runner has code for this one, and for those that end in "mtp".
_UNDOCUMENTED = "dflash"
_METHOD = PREFIX + "method"
_MOST_DRAFT_TOKENS = 32  # ``RBLNRejectionSamplerImpl.max_spec_len``
_SAMPLER = "rbln_use_custom_sampler"


@dataclass
class Ruling:
    """Engine flags that a rule sets, what the log says of it, and what no rule can mend."""

    flags: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def rule(flags: Mapping[str, str], speculation: Speculation | None, npu: str | None = None) -> Ruling:
    """RBLN's rules for these engine flags and this speculation; ``npu`` is the device's name, where it is known."""
    ruling = Ruling()
    ruling.faults += npu_faults(npu, flags, speculation)
    ruling.faults += _unknown_implementation(flags)
    if speculation is not None and not ruling.faults:
        _method(speculation, ruling)
        _model_implementation(flags, ruling)
        _scheduling(flags, ruling)
        _draft_length(flags, speculation, ruling)
    _adapters({**flags, **ruling.flags}, ruling)
    ruling.faults += rbln_options.faults(flags, _implementation({**flags, **ruling.flags}))
    _batch(flags, ruling)
    return ruling


def npu_faults(npu: str | None, flags: Mapping[str, str], speculation: Speculation | None) -> list[Fault]:
    """What this kind of NPU can't run; nothing where its name is not known."""
    name = (npu or "").strip().upper()
    if name.startswith(_ATOM):
        return _atom_faults(name, flags, speculation)
    if name.startswith(_REBEL) and flags.get("model_impl") not in _OPTIMUM and npu_groups.devices_per_rank(flags) > 1:
        rule = f"vllm-rbln 0.12 takes one NPU for each rank on {name}, and would stop only after loading the weights"
        return [Fault(_PER_RANK, rule, "Set tensor_parallel_size instead", npu_groups.devices_per_rank(flags))]
    return []


def _atom_faults(npu: str, flags: Mapping[str, str], speculation: Speculation | None) -> list[Fault]:
    """ATOM devices run the optimum implementation alone, which can't speculate."""
    if speculation is not None:
        rule = f"the NPU is {npu}, an ATOM device: it runs the optimum implementation only, which can't speculate"
        return [Fault(_METHOD, rule, "Remove the speculation, or serve this model on a Rebel100", speculation.method)]
    if flags.get("model_impl") == "vllm":
        rule = f"the vllm implementation does not run on {npu}, an ATOM device"
        return [Fault("model_impl", rule, 'Set it to "optimum"', "vllm")]
    return []


def _method(speculation: Speculation, ruling: Ruling) -> None:
    name = speculation.method
    if name in DOCUMENTED or name == _UNDOCUMENTED or name.endswith("mtp"):
        return  # what isn't documented has its warning already
    listed = ", ".join(DOCUMENTED)
    rule = "vllm-rbln 0.12 has no proposer for this method, and would say so only after loading the weights"
    ruling.faults.append(Fault(_METHOD, rule, f"Set it to one of {listed}", name))


def _unknown_implementation(flags: Mapping[str, str]) -> list[Fault]:
    given = flags.get("model_impl", "auto")
    if given in _IMPLEMENTATIONS:
        return []
    rule = "vllm-rbln 0.12 has no such model implementation"
    return [Fault("model_impl", rule, f"Set it to one of {', '.join(_IMPLEMENTATIONS)}", given)]


def _implementation(flags: Mapping[str, str]) -> str | None:
    given = flags.get("model_impl")
    return "optimum" if given in _OPTIMUM else given if given == "vllm" else None


def _batch(flags: Mapping[str, str], ruling: Ruling) -> None:
    if "max_num_seqs" not in flags:
        ruling.notes.append(
            "max_num_seqs is not set, and RBLN's default is 1: one request is served at a time, and the others wait. "
            "Set it to the number of streams that should run at once."
        )


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


def _draft_length(flags: Mapping[str, str], speculation: Speculation, ruling: Ruling) -> None:
    name, longest = speculation.longest_draft
    if longest > _MOST_DRAFT_TOKENS and _samples_on_the_npu(flags):
        rule = (
            f"the NPU's sampler of vllm-rbln 0.12 checks at most {_MOST_DRAFT_TOKENS} draft tokens in a step, and the "
        )
        remedy = f'Set it to {_MOST_DRAFT_TOKENS} at most, or set {_SAMPLER} to "false"'
        ruling.faults.append(Fault(PREFIX + name, rule + "engine ends on more", remedy, longest))


def _samples_on_the_npu(flags: Mapping[str, str]) -> bool:
    """The plugin's default, unless the option says otherwise in one of its three forms."""
    for key in (_SAMPLER, "additional_config.use_custom_sampler"):
        if key in flags:
            return is_on(flags, key)
    try:
        return strict_json.decode(flags.get("additional_config", "{}")).get("use_custom_sampler") is not False
    except (ValueError, AttributeError):  # the option's own fault, told elsewhere
        return True


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
