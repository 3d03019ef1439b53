"""A request's prompt: text, chat messages or token ids, exactly one of them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from rbln_vllm_backend import inputs
from rbln_vllm_backend.engine import Chat, Illustrated, Prompt, TokenIds
from rbln_vllm_backend.errors import InvalidRequest, Unsupported, shown
from rbln_vllm_backend.inputs import Tensors

NAMES = ("text_input", "messages", "input_ids")

# Arguments of the tokenizer's own function that would change what it returns, or the template itself.
_NOT_SETTABLE = frozenset(
    {
        "chat_template",
        "conversation",
        "max_length",
        "padding",
        "processor_kwargs",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "truncation",
    }
)
# Those that vLLM reads itself, by their truth: "false" would be true.
_SWITCHES = frozenset({"add_generation_prompt", "continue_final_message"})
_CONTENT = 'must be a text, or a list of parts such as {"type": "text", "text": "Hi"}'


def read(tensors: Tensors, template_kwargs: Mapping[str, Any]) -> Prompt:
    """The prompt; ``template_kwargs`` are the operator's, over which the client's go.

    Raises:
        InvalidRequest, Unsupported: with the input's name.
    """
    given = [name for name in NAMES if name in tensors]
    if not given:
        raise InvalidRequest("text_input: the prompt is missing; send text_input, messages or input_ids.")
    if len(given) > 1:
        raise InvalidRequest(f"{given[1]}: the prompt is given twice, as {' and as '.join(given)}; send one of them.")
    for name, only in (("chat_template_kwargs", "messages"), ("image", "text_input")):
        if name in tensors and given != [only]:
            raise InvalidRequest(f"{name}: only for a prompt of {only}, and this one is {given[0]}.")
    if given == ["messages"]:
        return Chat(_messages(tensors), {**template_kwargs, **_template_kwargs(tensors)})
    if given == ["input_ids"]:
        return _token_ids(tensors)
    prompt = inputs.text(tensors, "text_input")
    if not prompt:
        raise InvalidRequest("text_input: the prompt is missing or empty.")
    images = [_image(index, element) for index, element in enumerate(tensors.get("image", ()))]
    return Illustrated(prompt, images) if images else prompt


def _image(index: int, element: object) -> bytes:
    try:
        return base64.b64decode(element, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidRequest.about(f"image[{index}]", element, "must be base64") from None


def _token_ids(tensors: Tensors) -> TokenIds:
    ids = tensors["input_ids"]
    if not ids:
        raise InvalidRequest("input_ids: the prompt is empty.")
    if not all(type(token) is int for token in ids):
        raise InvalidRequest.about("input_ids", ids, "must be integers")
    return TokenIds(ids)  # type: ignore[arg-type]


def _messages(tensors: Tensors) -> list[dict[str, Any]]:
    messages = inputs.document(tensors, "messages", list, "a JSON list of objects with role and content")
    if not messages:
        raise InvalidRequest("messages: the prompt is empty.")
    for index, message in enumerate(messages):
        _check(f"messages[{index}]", message)
    return list(messages)


def _check(name: str, message: object) -> None:
    """Role and content are typed here; what else a message has is the chat template's."""
    if not isinstance(message, dict):
        raise InvalidRequest.about(name, message, "must be an object with role and content")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise InvalidRequest.about(f"{name}.role", role, "must be a text such as user, system or assistant")
    if isinstance(content, list):
        for index, part in enumerate(content):
            _check_part(f"{name}.content[{index}]", part)
    elif content is not None and not isinstance(content, str):
        raise InvalidRequest.about(f"{name}.content", content, _CONTENT)


def _check_part(name: str, part: object) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise InvalidRequest.about(name, part, _CONTENT)
    if kind != "text":
        # Of an image or a sound vLLM would fetch the address that the client names.
        raise Unsupported(f"{name}.type = {kind!r}: only parts of type text are taken.")
    if not isinstance(part.get("text"), str):
        raise InvalidRequest.about(f"{name}.text", part.get("text"), "must be a text")


def _template_kwargs(tensors: Tensors) -> dict[str, Any]:
    kwargs = inputs.document(tensors, "chat_template_kwargs", dict, "a JSON object") or {}
    if wrong := template_kwargs_rule(kwargs):
        raise InvalidRequest(f"chat_template_kwargs: {wrong}.")
    return dict(kwargs)


def template_kwargs_rule(kwargs: Mapping[str, Any]) -> str | None:
    """The rule that a client's or the operator's arguments of the chat template break, None if they are fine."""
    for name, value in kwargs.items():
        if name in _NOT_SETTABLE:
            return f"{name} is the backend's own and can't be set"
        if name in _SWITCHES and not isinstance(value, bool):
            return f"{name} must be true or false, and is {shown(value)}"
    return None
