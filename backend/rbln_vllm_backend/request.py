"""One request's options, strictly typed, in a frozen object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rbln_vllm_backend import embeddings, inputs, prompts, sampling, values
from rbln_vllm_backend.engine import Embedding, Illustrated, Prompt
from rbln_vllm_backend.errors import InvalidRequest, NotFound
from rbln_vllm_backend.inputs import Tensors
from rbln_vllm_backend.terms import Terms
from rbln_vllm_backend.values import Integer, Number
from rbln_vllm_backend.wire import RETURN_SWITCHES

_PRIORITY = Integer(minimum=-(2**31), maximum=2**31 - 1)
_TIMEOUT_S = Number(above=0, maximum=604_800)
_TIMEOUT_US = Integer(minimum=0, maximum=604_800_000_000)
_TIMEOUT_PARAMETER = "timeout"  # Triton's name; on generate it arrives as a parameter like any other


@dataclass(frozen=True)
class Request:
    """What a client asked for.

    ``asked`` holds the names of the ``return_…`` inputs that are true. ``prefix`` is what a unary answer starts with.
    ``client_id`` is Triton's request id, which the server echoes by itself; it need not be unique. ``timeout_s`` is the
    deadline, in seconds from now. ``trace_headers`` say which trace the request belongs to.
    """

    prompt: Prompt
    stream: bool
    sampling: Mapping[str, Any]
    asked: frozenset[str]
    prefix: str
    client_id: str
    adapter: str | None = None
    priority: int = 0
    timeout_s: float | None = None
    embedding: Embedding | None = None
    trace_headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        """How many texts the answer has."""
        return int(self.sampling.get("n", 1))


@dataclass(frozen=True)
class Cancellation:
    """Instead of a prompt: the open request with this id is to end."""

    name: str


def cancellation(tensors: Tensors) -> Cancellation | None:
    """The cancellation that a request is, if it is one.

    Raises:
        InvalidRequest: it has a prompt too.
    """
    name = inputs.text(tensors, "cancel_request_id")
    if name is None:
        return None
    if any(prompt in tensors for prompt in ("text_input", "messages", "input_ids")):
        raise InvalidRequest("cancel_request_id: a request that cancels another one has no prompt of its own.")
    return Cancellation(name)


def read(
    tensors: Tensors, parameters: Mapping[str, object], client_id: str, terms: Terms, timeout_us: int = 0
) -> Request:
    """A request from its input tensors, its request parameters, and Triton's own timeout (microseconds, 0: none).

    Raises:
        InvalidRequest, Unsupported, NotFound: with the input's or parameter's name.
    """
    _require_size(tensors, terms)
    embedding: Embedding | None = None
    if embeddings.NAME in tensors:
        prompt, embedding = embeddings.read(tensors)
    else:
        prompt = prompts.read(tensors, terms.chat_template_kwargs)
    stream = inputs.switch(tensors, "stream") or False
    rest = {name: value for name, value in parameters.items() if name not in terms.options.ignored_parameters}
    timeout_s = _timeout_s(tensors, rest.pop(_TIMEOUT_PARAMETER, None), timeout_us, terms)
    chosen = sampling.read(inputs.text(tensors, "sampling_parameters"), rest)
    adapter = chosen.pop("lora_name", None)
    _require_terms(chosen, adapter, terms)
    return Request(
        prompt=prompt,
        stream=stream,
        sampling=chosen,
        asked=_asked(tensors, chosen),
        prefix="" if embedding else _prefix(tensors, stream, prompt),
        client_id=client_id,
        adapter=adapter,
        priority=_priority(tensors, terms),
        timeout_s=timeout_s,
        embedding=embedding,
    )


def _asked(tensors: Tensors, chosen: Mapping[str, Any]) -> frozenset[str]:
    asked = frozenset(name for name in RETURN_SWITCHES if inputs.switch(tensors, name))
    if "return_token_ids" in asked and chosen.get("n", 1) > 1:
        raise InvalidRequest("return_token_ids: token ids are sent for one sequence only, and n is above 1.")
    return asked


def _require_size(tensors: Tensors, terms: Terms) -> None:
    most = terms.options.max_request_bytes
    size = sum(_size_bytes(elements) for elements in tensors.values())
    if size > most:
        raise InvalidRequest(f"The request's inputs have {size} bytes; serving.max_request_bytes allows {most}.")


def _size_bytes(elements: Sequence[object]) -> int:
    if elements and isinstance(elements[0], bytes):
        return sum(len(element) for element in elements if isinstance(element, bytes))
    return 8 * len(elements)


def _require_terms(chosen: Mapping[str, Any], adapter: str | None, terms: Terms) -> None:
    options = terms.options
    for name, option, most in (
        ("n", "max_n", options.max_n),
        ("max_tokens", "max_tokens_cap", options.max_tokens_cap),
    ):
        if most is not None and chosen.get(name, 0) > most:
            raise InvalidRequest.about(name, chosen[name], f"serving.{option} allows {most} at most")
    for name in chosen.get("structured_outputs", ()):
        if name not in options.structured_outputs:
            allowed = ", ".join(options.structured_outputs) or "none"
            raise InvalidRequest(f"structured_outputs: {name} is off; serving.structured_outputs allows {allowed}.")
    if terms.speculative_method is not None:
        for name in ("min_p", "logit_bias"):
            if chosen.get(name):
                rule = f"not with speculative decoding, and this model speculates ({terms.speculative_method})"
                raise InvalidRequest.about(name, chosen[name], rule)
    if adapter is not None and adapter not in terms.adapters:
        known = ", ".join(sorted(terms.adapters)) or "none (serving.lora.NAME in config.pbtxt)"
        raise NotFound(f"lora_name = {adapter[:80]!r}: no such adapter; this model has {known}.")


def _priority(tensors: Tensors, terms: Terms) -> int:
    priority = inputs.value(tensors, "priority", _PRIORITY)
    if priority is not None and not terms.by_priority:
        rule = "this engine serves in order of arrival; with scheduling_policy = priority it would count"
        raise InvalidRequest.about("priority", priority, rule)
    return priority or 0


def _timeout_s(tensors: Tensors, parameter: object, timeout_us: int, terms: Terms) -> float | None:
    """The client's ``timeout_s``, else Triton's timeout, else the parameter of that name, else the operator's."""
    given: float | None = inputs.value(tensors, "timeout_s", _TIMEOUT_S)
    if given is not None:
        return given
    if parameter is not None:
        try:
            timeout_us = timeout_us or values.read(_TIMEOUT_US, parameter)
        except ValueError:
            rule = f"must be {_TIMEOUT_US.words}, in microseconds"
            raise InvalidRequest.about(_TIMEOUT_PARAMETER, parameter, rule) from None
    return timeout_us / 1e6 if timeout_us else terms.options.default_timeout_s


def _prefix(tensors: Tensors, stream: bool, prompt: Prompt) -> str:
    excluded = inputs.switch(tensors, "exclude_input_in_output")
    if stream and excluded is False:
        raise InvalidRequest.about("exclude_input_in_output", False, "a stream never repeats its input")
    text = prompt.text if isinstance(prompt, Illustrated) else prompt
    return text if isinstance(text, str) and not stream and not excluded else ""
