"""Values are read strictly: each type by itself, and only the documented spellings."""

from __future__ import annotations

import pytest

from rbln_vllm_backend.values import Choice, Integer, Names, NamesOf, Number, Rule, Switch, Text, ZeroOr, read


@pytest.mark.parametrize(
    ("rule", "given", "value"),
    [
        (Integer(), 3, 3),
        (Integer(), "3", 3),
        (Integer(), " -3 ", -3),
        (Number(), 0.5, 0.5),
        (Number(), 1, 1.0),
        (Number(), "1e-3", 0.001),
        (Number(minimum=0), "0", 0.0),
        (ZeroOr(Number(minimum=5)), "0", 0.0),
        (ZeroOr(Number(minimum=5)), "-0.0", 0.0),
        (ZeroOr(Number(minimum=5)), "5", 5.0),
        (Switch(), True, True),
        (Switch(), "True", True),
        (Switch(), "yes", True),
        (Switch(), "1", True),
        (Switch(), "false", False),
        (Switch(), "OFF", False),
        (Text(), "x", "x"),
        (Choice(("a", "b")), "a", "a"),
        (Names(), "a, b,,", ("a", "b")),
        (Names(), "", ()),
    ],
)
def test_a_documented_spelling_is_read(rule: Rule, given: object, value: object) -> None:
    result = read(rule, given)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        (Integer(), True),
        (Integer(), 1.0),
        (Integer(), "1.0"),
        (Integer(), "three"),
        (Integer(), "1_000"),
        (Integer(), "٣"),
        (Integer(), None),
        (Integer(minimum=1), 0),
        (Integer(maximum=5), "6"),
        (Number(), True),
        (Number(), "nan"),
        (Number(), float("nan")),
        (Number(), float("inf")),
        (Number(), "1e999"),
        (Number(), "0x10"),
        (Number(above=0), 0),
        (Number(maximum=1), 1.5),
        (Number(), 10**400),
        (Switch(), 1),
        (Switch(), 0.0),
        (Switch(), "maybe"),
        (Switch(), ""),
        (Text(), ""),
        (Text(), 5),
        (Text(), "\ud800"),
        (Choice(("a", "b")), "A"),
        (ZeroOr(Number(minimum=5)), "4.9"),
        (ZeroOr(Number(minimum=5)), False),
        (ZeroOr(Number(minimum=5)), "never"),
    ],
)
def test_anything_else_is_refused(rule: Rule, given: object) -> None:
    with pytest.raises(ValueError):
        read(rule, given)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Integer(), "an integer"),
        (Integer(minimum=1), "an integer of at least 1"),
        (Integer(minimum=1, maximum=16), "an integer from 1 to 16"),
        (Number(above=0, maximum=1), "a number above 0 and at most 1"),
        (ZeroOr(Number(minimum=5)), "0 or a number of at least 5"),
        (Choice(("a", "b")), "one of a, b"),
    ],
)
def test_a_rule_says_what_it_wants(rule: Rule, words: str) -> None:
    assert rule.words == words


def test_names_of_a_set_are_all_known() -> None:
    rule = NamesOf(("json", "regex"))
    assert rule.spelled(" regex, json ,") == ("regex", "json")
    assert rule.spelled("") == ()
    assert rule.words == "names separated by commas, of json, regex"
    with pytest.raises(ValueError):
        rule.spelled("json,grammer")
