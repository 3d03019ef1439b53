"""Prompts as vLLM's engine takes them, made by vLLM's own renderer on its own threads."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rbln_vllm_backend.engine import Chat, Illustrated, Prompt, TokenIds
from rbln_vllm_backend.errors import ConfigError, Fault, InvalidRequest, RequestError, Unsupported
from rbln_vllm_backend.serving_options import PREFIX, ServingOptions

_MOST_PIXELS = 64_000_000


def require_template(text: str | None) -> None:
    """Refuses, before anything is loaded, an operator's chat template that can't be read; raises ConfigError."""
    import jinja2.ext
    from vllm.renderers.hf import AssistantTracker

    environment = jinja2.Environment(extensions=[AssistantTracker, jinja2.ext.loopcontrols])
    try:
        environment.parse(text or "")
    except jinja2.TemplateSyntaxError as error:
        rule = f"not a Jinja template (line {error.lineno}: {error.message})"
        raise ConfigError([Fault(PREFIX + "chat_template", rule, "Mend the template")]) from error


class PromptRenderer:
    """Turns prompts into token ids; every fault in one is the client's, and named by its input."""

    def __init__(self, llm: Any, options: ServingOptions) -> None:
        self._renderer = llm.renderer
        self._options = options
        self._context = int(llm.model_config.max_model_len)
        self._takes_images = bool(llm.model_config.is_multimodal_model)
        self._vocabulary = int(llm.model_config.get_vocab_size())

    async def render(self, prompt: Prompt, num_new_tokens: int = 1) -> Any:
        """The prompt for ``AsyncLLM``, with room for so many new tokens at least.

        Raises:
            InvalidRequest: too long, out of the vocabulary, or not what the chat template takes.
            Unsupported: messages, and neither checkpoint nor operator brings a chat template.
        """
        if isinstance(prompt, Chat):
            name, rendered = "messages", await self._chat(prompt)
        elif isinstance(prompt, TokenIds):
            name, rendered = "input_ids", await self._token_ids(prompt.ids, num_new_tokens)
        elif isinstance(prompt, Illustrated):
            name, rendered = "text_input", await self._illustrated(prompt)
        else:
            name, rendered = "text_input", await self._text({"prompt": prompt})
        self._require_length(name, len(rendered["prompt_token_ids"]), num_new_tokens)
        return rendered

    async def _text(self, prompt: Mapping[str, Any]) -> Any:
        from vllm.exceptions import VLLMClientError

        try:
            (rendered,) = await self._renderer.render_cmpl_async([prompt])
        except VLLMClientError as error:
            raise InvalidRequest(f"text_input: {error}") from error
        return rendered

    async def _illustrated(self, prompt: Illustrated) -> Any:
        if not self._takes_images:
            raise Unsupported("image: this checkpoint takes text only.")
        pictures = await asyncio.to_thread(_pictures, prompt.images)
        return await self._text({"prompt": prompt.text, "multi_modal_data": {"image": pictures}})

    async def _token_ids(self, ids: Sequence[int], num_new_tokens: int) -> Any:
        self._require_length("input_ids", len(ids), num_new_tokens)
        for wrong in (min(ids), max(ids)):
            if not 0 <= wrong < self._vocabulary:
                raise InvalidRequest.about("input_ids", wrong, f"token ids go from 0 to {self._vocabulary - 1}")
        (rendered,) = await self._renderer.render_cmpl_async([{"prompt_token_ids": list(ids)}])
        return rendered

    async def _chat(self, chat: Chat) -> Any:
        from vllm.renderers import ChatParams

        await self._require_renderable(chat)
        continues = bool(chat.template_kwargs.get("continue_final_message", False))
        params = ChatParams(
            chat_template=self._options.chat_template,
            chat_template_kwargs={"add_generation_prompt": not continues, **chat.template_kwargs},
        )
        try:
            _, (rendered,) = await self._renderer.render_chat_async([list(chat.messages)], params)
        except Exception as error:
            raise _refusal(error) from error
        return rendered

    async def _require_renderable(self, chat: Chat) -> None:
        """vLLM renders and tokenizes messages whole before it counts: too many characters would hold up the others."""
        tokenizer = self._renderer.get_tokenizer()
        most = self._context * int(getattr(tokenizer, "max_chars_per_token", 0) or 64)
        # Millions of small values take a while to count, and the loop has others to serve.
        if await asyncio.to_thread(_is_longer, [*chat.messages, chat.template_kwargs], most):
            raise InvalidRequest(
                f"messages: they have more characters than the context (max_model_len) of {self._context} tokens can "
                "hold."
            )

    def _require_length(self, name: str, length: int, num_new_tokens: int) -> None:
        most = self._options.max_prompt_tokens
        if length + num_new_tokens > self._context:
            new = ", at least one of them new" if num_new_tokens else ""
            raise InvalidRequest(
                f"{name}: the prompt has {length} tokens, and the context (max_model_len) has room for "
                f"{self._context}{new}."
            )
        if most is not None and length > most:
            raise InvalidRequest(f"{name}: the prompt has {length} tokens; serving.max_prompt_tokens allows {most}.")


def _pictures(images: Sequence[bytes]) -> list[Any]:
    pictures: list[Any] = []
    remaining = _MOST_PIXELS
    for index, data in enumerate(images):
        pictures.append(_picture(f"image[{index}]", data, remaining))
        remaining -= pictures[-1].width * pictures[-1].height
    return pictures


def _picture(name: str, data: bytes, most_pixels: int) -> Any:
    """The image, decoded; of one that is small as a file and huge as a picture only the size is read."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            if width * height > most_pixels:
                rule = f"a request's images may have {_MOST_PIXELS} pixels together"
                raise InvalidRequest(f"{name}: {width} x {height} pixels; {rule}.")
            return image.convert("RGB")
    except InvalidRequest:
        raise
    except Exception as error:  # its decoders raise whatever they like
        raise InvalidRequest(f"{name}: not an image that can be read ({error}).") from error


def _is_longer(document: object, most: int) -> bool:
    """Whether a JSON document has more characters in its texts; a template may write any of them, and count values."""
    length, rest = 0, [document]
    while rest and length <= most:
        value = rest.pop()
        length += len(value) if isinstance(value, str) else 1
        if isinstance(value, Mapping):
            rest += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            rest += value
    return length > most


def _refusal(error: Exception) -> RequestError:
    """Whatever a template or vLLM's reading of messages raises comes from what the client sent, or from its lack."""
    # The class has moved between vLLM's versions.
    if type(error).__name__ == "ChatTemplateResolutionError":
        return Unsupported(
            "messages: the checkpoint has no chat template; set serving.chat_template in config.pbtxt, or send "
            "text_input."
        )
    return InvalidRequest(f"messages: the chat template can't take them ({error}).")
