"""What a regular expression or a grammar may cost the engine, judged by its text.

Each part that may match nothing is a state more at each place of the text: xgrammar's compile grows with the square of
their number and more, and so does each step, for which every other request waits. Of 128 in a row, with a vocabulary of
32,000 tokens, xgrammar 0.2 compiles for 3 s and takes 0.02 to 0.15 s a step; of 500 it didn't end in 40 s.
"""

from __future__ import annotations

import re

MOST_OPTIONAL = 128
_MOST_REPEATED = 2048
WORDS = f"at most {MOST_OPTIONAL} optional parts (?, *, {{0,…}}, empty alternatives)"

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_GROUP_TYPE = re.compile(r"\(\?")
_OPTIONAL = re.compile(r"[?*]|\{0*[,}]|\{\d+,|(?<=[(|])(?=[|)])")
_GROUP_REPEAT = re.compile(r"\)\{(\d*)(?:,(\d*))?\}")
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
_CLASS = re.compile(r"\[(?:\\.|[^\]\\\n])*\]")
_SPACE = re.compile(r"\s+")


def is_affordable_regex(pattern: str) -> bool:
    """Whether a regular expression stays within the bound."""
    return _is_affordable(_GROUP_TYPE.sub("(", _ESCAPED.sub("a", pattern)))


def is_affordable_grammar(grammar: str) -> bool:
    """Whether a grammar, EBNF or Lark, stays within the bound.

    A reference to a rule that may match nothing isn't counted, so that a grammar can still be made that costs more.
    """
    plain = _LITERAL.sub(lambda literal: "()" if literal[0] == '""' else "a", grammar)
    # In Lark brackets are an optional part, in EBNF a class of characters.
    plain = _CLASS.sub("a", plain) if "::=" in grammar else plain.replace("[", "?")
    return _is_affordable(_SPACE.sub("", plain))


def _is_affordable(text: str) -> bool:
    optional = len(_OPTIONAL.findall(text))
    repeats = [int(number) for match in _GROUP_REPEAT.findall(text) for number in match if number]
    return optional <= MOST_OPTIONAL and optional * max(repeats, default=1) <= _MOST_REPEATED
