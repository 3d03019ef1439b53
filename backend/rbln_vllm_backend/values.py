"""Rules for single values, strict about types: one reader for config.pbtxt and for requests.

A rule turns what somebody wrote into a value, or raises ValueError. ``words`` completes the sentence "must be …".
``True`` is no integer, ``1.0`` is no integer, and "false" is not true: engines fail late, and for everybody, on a value
of the wrong type.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rbln_vllm_backend import strict_json

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
# At most so many characters are looked at: the expression's time grows with their square, and all threads wait for it.
_LONGEST_NUMBER = 100
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Rule(Protocol):
    """What a value must be."""

    @property
    def words(self) -> str:
        """Completes "must be …"."""

    def typed(self, value: object) -> Any:
        """The value of a JSON document, checked; raises ValueError."""

    def spelled(self, text: str) -> Any:
        """The value that a text spells (a config parameter, a query field), checked; raises ValueError."""


def read(rule: Rule, value: object) -> Any:
    """The value, given as its own type or spelled as text; raises ValueError."""
    return rule.spelled(value) if isinstance(value, str) else rule.typed(value)


@dataclass(frozen=True)
class Integer:
    """A whole number within inclusive bounds."""

    minimum: int | None = None
    maximum: int | None = None

    @property
    def words(self) -> str:
        return "an integer" + _bounds(self.minimum, self.maximum)

    def typed(self, value: object) -> int:
        if type(value) is not int:
            raise ValueError
        _require_within(value, self.minimum, self.maximum)
        return value

    def spelled(self, text: str) -> int:
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError
        return self.typed(int(text))


@dataclass(frozen=True)
class Number:
    """A finite number within inclusive bounds; ``above`` excludes the lower one."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None

    @property
    def words(self) -> str:
        if self.above is not None:
            upper = "" if self.maximum is None else f" and at most {self.maximum:g}"
            return f"a number above {self.above:g}{upper}"
        return "a number" + _bounds(self.minimum, self.maximum)

    def typed(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError
        if abs(value) > sys.float_info.max or value != value:  # infinite, too large an integer, or not a number
            raise ValueError
        if self.above is not None and value <= self.above:
            raise ValueError
        _require_within(value, self.minimum, self.maximum)
        return float(value)

    def spelled(self, text: str) -> float:
        if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text.strip()):
            raise ValueError
        return self.typed(float(text))


@dataclass(frozen=True)
class ZeroOr:
    """0, which turns something off, or what the rule says."""

    rule: Number

    @property
    def words(self) -> str:
        return f"0 or {self.rule.words}"

    def typed(self, value: object) -> float:
        return 0.0 if value == 0 and type(value) in (int, float) else self.rule.typed(value)

    def spelled(self, text: str) -> float:
        return self.typed(Number().spelled(text))


@dataclass(frozen=True)
class Switch:
    """True or false; as text also 1/0, yes/no, on/off in any case."""

    words: str = "true or false"

    def typed(self, value: object) -> bool:
        if type(value) is not bool:
            raise ValueError
        return value

    def spelled(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise ValueError
        return word in _TRUE


@dataclass(frozen=True)
class Text:
    """Text that isn't empty and that UTF-8 can carry (half of a surrogate pair can't)."""

    words: str = "a text that is not empty"

    def typed(self, value: object) -> str:
        if type(value) is not str or not value:
            raise ValueError
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError from None
        return value

    def spelled(self, text: str) -> str:
        return self.typed(text)


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    options: Sequence[str]

    @property
    def words(self) -> str:
        return "one of " + ", ".join(self.options)

    def typed(self, value: object) -> str:
        if value not in self.options:
            raise ValueError
        return str(value)

    def spelled(self, text: str) -> str:
        return self.typed(text)


@dataclass(frozen=True)
class Names:
    """Names separated by commas; none is a valid list."""

    words: str = "names separated by commas"

    def typed(self, value: object) -> tuple[str, ...]:
        raise ValueError

    def spelled(self, text: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class NamesOf:
    """Some of the allowed names, separated by commas; none is a valid list."""

    allowed: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"names separated by commas, of {', '.join(self.allowed)}"

    def typed(self, value: object) -> tuple[str, ...]:
        raise ValueError

    def spelled(self, text: str) -> tuple[str, ...]:
        names = Names().spelled(text)
        if not set(names) <= set(self.allowed):
            raise ValueError
        return names


@dataclass(frozen=True)
class JsonObject:
    """A JSON object, or its text."""

    words: str = "a JSON object"

    def typed(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError
        return value

    def spelled(self, text: str) -> dict[str, Any]:
        return self.typed(strict_json.decode(text))


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum:g} to {maximum:g}" if abs(maximum) < 1e6 else f" from {minimum} to {maximum}"
    if minimum is not None:
        return f" of at least {minimum:g}"
    return "" if maximum is None else f" of at most {maximum:g}"


def _require_within(value: float, minimum: float | None, maximum: float | None) -> None:
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise ValueError
