"""Mends the text behind a prompt that ends inside a character.

vLLM 0.30 to 0.32 primes its incremental detokenizer (``tokenizers.decoders.DecodeStream``) with the prompt's ids. When
their text ends in an incomplete character (U+FFFD) the stream takes none of it as said, and the first piece repeats
the whole prompt: a client's text is wrong, and a stop string may match in its own prompt.
``tests/engine/test_detokenizer.py`` holds both the place of the fault and the cure.
"""

from __future__ import annotations

from typing import Any

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_LAST_TOKENS = 8  # more than a character has bytes
_MARK = "_mended_by_rbln_vllm_backend"


def repair() -> None:
    """Puts the cure into vLLM's detokenizer, in this process; once, and only where vLLM has the class."""
    from vllm.v1.engine import detokenizer

    faulty = getattr(detokenizer, "FastIncrementalDetokenizer", None)
    if faulty is None or hasattr(faulty, _MARK):
        return
    original = faulty.__init__

    def __init__(self: Any, tokenizer: Any, request: Any) -> None:
        original(self, tokenizer, request)
        echo = _echo(self.tokenizer, request.prompt_token_ids or [], self.skip_special_tokens)
        if echo:
            self.stream = _WithoutEcho(self.stream, echo)

    faulty.__init__ = __init__
    setattr(faulty, _MARK, True)


def _echo(tokenizer: Any, ids: list[int], skip_special_tokens: bool) -> str:
    """The text that the stream would repeat, empty for nearly every prompt."""
    last = tokenizer.decode(ids[-_LAST_TOKENS:], skip_special_tokens)
    if last and _INCOMPLETE not in last:
        return ""
    whole: str = tokenizer.decode(ids, skip_special_tokens)
    return whole if whole.endswith(_INCOMPLETE) else ""


class _WithoutEcho:
    """A decode stream whose first text begins with the prompt's, which is taken off."""

    def __init__(self, stream: Any, echo: str) -> None:
        self._stream = stream
        self._echo = echo

    def step(self, tokenizer: Any, token: int) -> str | None:
        """The new text, None while a character is incomplete."""
        text: str | None = self._stream.step(tokenizer, token)
        if text and self._echo:
            text = text[_num_common(self._echo, text) :]
            self._echo = ""
        return text


def _num_common(left: str, right: str) -> int:
    """How many characters both texts begin with."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))
