"""What the protocol fixes in a config.pbtxt besides parameters: no batching by the server; decoupled or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rbln_vllm_backend.errors import ConfigError, Fault


def contradictions(max_batch_size: int, decoupled: bool | None, streams: bool) -> list[Fault]:
    """What is wrong with the file.

    Args:
        max_batch_size: as the file has it; 0 is none.
        decoupled: its ``model_transaction_policy``; None if it says nothing and will be completed.
        streams: whether the model must be decoupled; the unary one must not be.
    """
    faults = []
    if max_batch_size:
        rule = "the engine makes its batches itself, from requests that come one by one"
        remedy = "Remove it, or set it to 0; the engine's own is max_num_seqs"
        faults.append(Fault("max_batch_size", rule, remedy, max_batch_size))
    if decoupled is not None and decoupled != streams:
        faults.append(_wrong_policy(decoupled, streams))
    return faults


def require(model_config: Mapping[str, Any], streams: bool) -> None:
    """Refuses a model's final configuration, in Triton's JSON form, that says otherwise; raises ConfigError."""
    decoupled = bool(model_config.get("model_transaction_policy", {}).get("decoupled"))
    if faults := contradictions(model_config.get("max_batch_size", 0), decoupled, streams):
        raise ConfigError(faults)


def _wrong_policy(decoupled: bool, streams: bool) -> Fault:
    if streams:
        rule = "the model must be decoupled to stream"
        remedy = "Set it to true; `rbln-vllm-backend check --full-config` prints the whole file"
    else:
        rule = "the unary model can't be decoupled"
        remedy = "Remove it; the decoupled model is the one that serving.target_model names"
    return Fault("model_transaction_policy.decoupled", rule, remedy, decoupled)
