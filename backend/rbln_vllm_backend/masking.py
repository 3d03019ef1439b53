"""Secrets in what people read: logs, errors, the output of ``check``."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
_SECRET_WORD = re.compile("TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?|[A-Z0-9]+(TOKEN|KEY|SECRET|PASSWORD)")
# Only variables are named so for their secrets; an OpenTelemetry header mostly holds a bearer token.
_SECRET_WORD_OF_VARIABLES = re.compile("PASS|PAT|AUTH|HEADERS")
_VARIABLE = "ENV."
_NEVER_SECRET = "SPECULATIVE_CONFIG."  # it counts tokens


def masked(name: str, value: object) -> object:
    """The value, or a mark in its place where a word of the name says that it is a secret (HF_TOKEN, hf_token)."""
    upper = name.upper()
    if upper.startswith(_NEVER_SECRET):
        return value
    words = re.split(r"[._\W]+", upper)
    secret = any(_SECRET_WORD.fullmatch(word) for word in words)
    if upper.startswith(_VARIABLE):
        secret = secret or any(_SECRET_WORD_OF_VARIABLES.fullmatch(word) for word in words)
    return HIDDEN if secret else value
