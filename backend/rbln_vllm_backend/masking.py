"""Secrets in what people read: logs, errors, the output of ``check``."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
_SECRET_WORD = re.compile("TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?|[A-Z0-9]+(TOKEN|KEY|SECRET|PASSWORD)")


def masked(name: str, value: object) -> object:
    """The value, or a mark in its place where a word of the name says that it is a secret (HF_TOKEN, hf_token)."""
    words = re.split(r"[._\W]+", name.upper())
    return HIDDEN if any(_SECRET_WORD.fullmatch(word) for word in words) else value
