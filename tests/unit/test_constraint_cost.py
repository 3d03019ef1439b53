"""What is turned away for its cost, and what real constraints look like beside it."""

from __future__ import annotations

import time

import pytest

from rbln_vllm_backend.constraint_cost import is_affordable_grammar, is_affordable_regex

ADDRESS = r"^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9-]{1,63})*$"
JSON = r"""root ::= ws value ws
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ("," ws member)*)? "}" ws
member ::= string ws ":" ws value
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
ws ::= [ \t\n]*
"""
LARK = """start: statement+
statement: NAME "=" expression ["if" expression]
expression: NUMBER | NAME | expression "+" expression
NAME: /[a-z][a-z0-9_]*/
NUMBER: /[0-9]+(\\.[0-9]*)?/
"""


@pytest.mark.parametrize(
    "pattern",
    [
        ADDRESS,
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})",
        "(?:" + "|".join(f"word{number}" for number in range(500)) + ")",
        "[ab]{1000}",
        r"\?\*" * 500,
        "a?" * 128,
        "(?=a)" * 200,
    ],
)
def test_an_ordinary_expression_passes(pattern: str) -> None:
    assert is_affordable_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a?" * 129,
        "a*" * 129,
        "a{0,3}" * 129,
        "a{,3}" * 129,
        "(a|)" * 129,
        "(|a)" * 129,
        "(a||b)" * 129,
        "(?:a)?" * 129,
        "((a?){1000})" * 30,
        "((a?){1,1000})" * 15,
        "((a*){1000,})" * 30,
        "(((a?){100}){100}){20}",
        "[?*]" * 65,
    ],
)
def test_an_expression_that_would_hold_the_engine_up_is_turned_away(pattern: str) -> None:
    assert not is_affordable_regex(pattern)


@pytest.mark.parametrize("grammar", [JSON, LARK, "root ::= " + '"?*" ' * 500, "root ::= " + "[?*] " * 500])
def test_an_ordinary_grammar_passes(grammar: str) -> None:
    assert is_affordable_grammar(grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= " + '"a"? ' * 129,
        "root ::= " + '("a" | "") ' * 129,
        "root ::= " + '("a" | ) ' * 129,
        "\n".join(f'r{number} ::= "a"?' for number in range(129)),
        "start: " + '["a"] ' * 129,
        "start: " + '"a"? ' * 129,
        "root ::= " + '("a"?){1,1000} ' * 30,
        'root ::= ["] ' + "a? " * 500 + '["]\na ::= "x"',
        'root ::= "a" # "\n' + 'b ::= "a"? ' * 129,
        "start: " + '["x"] ' * 500 + "// ::=",
        'start: ("a"?)~2049',
        'start: ("a"?)~1..2049',
        "start: '\"' " + "A? " * 500 + '"x"',
    ],
)
def test_a_grammar_that_would_hold_the_engine_up_is_turned_away(grammar: str) -> None:
    assert not is_affordable_grammar(grammar)


@pytest.mark.parametrize(
    "text", ["::=" + "[" * 65_000, "::=" + '\\"' * 32_000, "(" * 65_000, "~" * 65_000, "#/" * 32_000]
)
def test_the_look_costs_no_more_than_the_text_is_long(text: str) -> None:
    """It holds the interpreter's lock, for which every stream waits; before, the first took minutes."""
    begin = time.process_time()
    is_affordable_grammar(text)
    is_affordable_regex(text[:8192])
    assert time.process_time() - begin < 1
