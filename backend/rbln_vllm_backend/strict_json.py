"""JSON as its standard has it: no NaN, no Infinity, whole characters, a bounded depth."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import msgspec

# Below what any Python can walk; each has its own bound, and 3.13's parser takes more than its stack does.
DEEPEST = 256
_TOO_DEEP = f"nested more than {DEEPEST} deep"


def decode(text: str | bytes) -> Any:
    """The document; raises ValueError, which names the position or the depth."""
    try:
        document = msgspec.json.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None
    if _is_deeper(document, DEEPEST):
        raise ValueError(_TOO_DEEP)
    return document


def _is_deeper(document: object, limit: int) -> bool:
    level = _containers([document])
    for _ in range(limit):
        if not level:
            return False
        level = _containers(chain.from_iterable(item.values() if isinstance(item, dict) else item for item in level))
    return bool(level)


def _containers(items: Iterable[object]) -> list[dict[Any, Any] | list[Any]]:
    return [item for item in items if isinstance(item, (dict, list))]
