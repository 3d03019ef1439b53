"""The tensors of the wire protocol: one table for auto-completion, decoding, and the printed full configuration."""

from __future__ import annotations

from dataclasses import dataclass

from rbln_vllm_backend import unary_call


@dataclass(frozen=True)
class Tensor:
    """A tensor by name, Triton data type (as in config.pbtxt) and shape (-1: any length)."""

    name: str
    data_type: str
    dims: tuple[int, ...]

    def as_triton(self, optional: bool = False) -> dict[str, object]:
        """The entry of a model configuration."""
        entry: dict[str, object] = {"name": self.name, "data_type": self.data_type, "dims": list(self.dims)}
        return {**entry, "optional": True} if optional else entry


# What a client may ask for, beside the text: each is a BOOL input, false by default.
RETURN_SWITCHES = (
    "return_finish_reason",
    "return_cumulative_logprob",
    "return_logprobs",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "return_stop_reason",
    "return_token_ids",
    "return_cached_tokens",
    "return_totals",
    "return_speculation",
)

# Every input is optional for Triton: a missing prompt gets our own message.
INPUTS = (
    Tensor("text_input", "TYPE_STRING", (1,)),
    Tensor("messages", "TYPE_STRING", (1,)),
    Tensor("chat_template_kwargs", "TYPE_STRING", (1,)),
    Tensor("input_ids", "TYPE_INT64", (-1,)),
    Tensor("image", "TYPE_STRING", (-1,)),
    Tensor("stream", "TYPE_BOOL", (1,)),
    Tensor("sampling_parameters", "TYPE_STRING", (1,)),
    Tensor("exclude_input_in_output", "TYPE_BOOL", (1,)),
    *(Tensor(name, "TYPE_BOOL", (1,)) for name in RETURN_SWITCHES),
    Tensor("priority", "TYPE_INT32", (1,)),
    Tensor("timeout_s", "TYPE_FP32", (1,)),
    Tensor("cancel_request_id", "TYPE_STRING", (1,)),
    Tensor("embedding_request", "TYPE_STRING", (1,)),
)

# Of the unary model.
UNARY_OUTPUTS = (
    Tensor("text_output", "TYPE_STRING", (-1,)),
    Tensor("sequence_index", "TYPE_UINT32", (-1,)),
    Tensor("finish_reason", "TYPE_STRING", (-1,)),
    Tensor("stop_reason", "TYPE_STRING", (-1,)),
    Tensor("cumulative_logprob", "TYPE_FP32", (-1,)),
    Tensor("logprobs", "TYPE_STRING", (-1,)),
    Tensor("num_input_tokens", "TYPE_UINT32", (-1,)),
    Tensor("num_output_tokens", "TYPE_UINT32", (-1,)),
    Tensor("token_ids", "TYPE_INT64", (-1,)),
    Tensor("num_cached_tokens", "TYPE_UINT32", (-1,)),
    Tensor("total_input_tokens", "TYPE_UINT32", (-1,)),
    Tensor("total_output_tokens", "TYPE_UINT32", (-1,)),
    Tensor("num_draft_tokens", "TYPE_UINT32", (-1,)),
    Tensor("num_accepted_tokens", "TYPE_UINT32", (-1,)),
    Tensor("acceptance_rate", "TYPE_FP32", (-1,)),
    Tensor("mean_acceptance_length", "TYPE_FP32", (-1,)),
)

# The last one is for the unary model alone: see ``unary_call``.
OUTPUTS = (*UNARY_OUTPUTS, Tensor(unary_call.ERROR, "TYPE_STRING", (-1,)))
