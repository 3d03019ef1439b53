"""What a regular expression or a grammar may cost the engine, judged by its text.

Each part that may match nothing is a state more at each place of the text: xgrammar's compile grows with the square of
their number and more, and so does each step, for which every other request waits. Of 128 in a row, with a vocabulary of
32,000 tokens, xgrammar 0.2 compiles for 3 s and takes 0.02 to 0.15 s a step; of 500 it didn't end in 40 s.

The bound isn't complete; docs/security.md says what passes it.
"""

from __future__ import annotations

import re

MOST_OPTIONAL = 128
_MOST_REPEATED = 2048
WORDS = (
    f"at most {MOST_OPTIONAL} optional parts (?, *, {{n,m}}, empty alternatives), "
    f"{_MOST_REPEATED} when multiplied by the repeats of groups"
)

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_GROUP_TYPE = re.compile(r"\(\?")
_OPTIONAL = re.compile(r"[?*]|\{\d*,|(?<=[(|])(?=[|)])|~\d*\.\.")
_REPEAT = re.compile(r"(?:\)\{|~)(\d*)(?:(?:,|\.\.)(\d*))?")
# One pass from the left, and what isn't closed is taken to the end: a text must not cost more than its length.
_EBNF_ATOM = re.compile(r'"(?:\\.|[^"\\])*"?|\[(?:\\.|[^\]\\])*\]?|#[^\n]*', re.DOTALL)
_COMMENT = re.compile(r"(?:#|//).*")
_SPACE = re.compile(r"\s+")


def is_affordable_regex(pattern: str) -> bool:
    """Whether a regular expression stays within the bound."""
    return _is_affordable(_GROUP_TYPE.sub("(", _ESCAPED.sub("a", pattern)))


def is_affordable_grammar(grammar: str) -> bool:
    """Whether a grammar, EBNF or Lark, stays within the bound; vLLM's rule tells the two apart."""
    if "::=" in _COMMENT.sub("", grammar):
        plain = _EBNF_ATOM.sub(lambda atom: _plain(atom[0]), grammar)
    else:
        plain = grammar.replace("[", "?")  # an optional part in Lark; its literals are counted as they stand
    return _is_affordable(_SPACE.sub("", plain))


def _plain(atom: str) -> str:
    """A literal, class or comment of EBNF as it counts."""
    if atom == '""':
        return "()"
    return "" if atom[0] == "#" else "a"


def _is_affordable(text: str) -> bool:
    optional = len(_OPTIONAL.findall(text))
    if optional > MOST_OPTIONAL:
        return False
    for least, most in _REPEAT.findall(text):
        optional *= max(int(least or 1), int(most or 1))
        if optional > _MOST_REPEATED:
            return False
    return True
