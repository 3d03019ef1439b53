"""JSON as its standard has it: no NaN, no Infinity, whole characters, a bounded depth."""

from __future__ import annotations

from typing import Any

import msgspec


def decode(text: str | bytes) -> Any:
    """The document; raises ValueError, which names the position."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
