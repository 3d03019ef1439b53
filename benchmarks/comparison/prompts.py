"""Prompts: words drawn with a fixed seed, so that every contestant of a round gets the same, and no two are alike."""

from __future__ import annotations

import random

_TEXT = "the quick brown fox jumps over lazy dog tokens stream to clients through model and pieces joined equal answer"
_WORDS = _TEXT.split()


def prompts(seed: int, count: int, words: int = 24) -> list[str]:
    """``count`` prompts of that many words."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(_WORDS) for _ in range(words)) for _ in range(count)]
