"""Engine flags, read by vLLM's own parser.

``key`` is the flag without its dashes and with ``_`` for ``-``; ``key.nested`` sets one key of a JSON flag. Each
parameter is parsed by itself, so that every bad one is reported. The platform plugin's own flags (``rbln_…``) are in
the same parser, when the plugin is installed.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Mapping
from typing import Any

from rbln_vllm_backend import strict_json, vllm_refusals
from rbln_vllm_backend.errors import ConfigError, Fault
from rbln_vllm_backend.speculation import ROOT, Speculation
from rbln_vllm_backend.values import Switch

_ARGUMENT_PREFIX = re.compile(r"^argument [^:]*: ")


def parse(flags: Mapping[str, str], speculation: Speculation | None) -> argparse.Namespace:
    """The flags as ``AsyncEngineArgs.from_cli_args`` takes them.

    Raises:
        ConfigError: with every flag that is unknown or has a wrong value.
    """
    parser = _parser()
    faults: list[Fault] = []
    arguments: list[str] = []
    for key, text in flags.items():
        try:
            words = _words(parser, key, text)
            parser.parse_args(words)
        except _Refused as refusal:
            faults.append(Fault(key, refusal.rule, refusal.remedy, text))
        else:
            arguments += words
    if faults:
        raise ConfigError(faults)
    if speculation is not None:
        arguments.append(f"{_flag(ROOT)}={speculation.as_json()}")
    namespace: argparse.Namespace = parser.parse_args(arguments)
    return namespace


class _Refused(Exception):
    def __init__(self, rule: str, remedy: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.remedy = remedy


def _parser() -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> None:  # argparse would end the process
            rule = vllm_refusals.sentence(_ARGUMENT_PREFIX.sub("", message))
            raise _Refused(rule, "See `vllm serve --help` for what it takes")

    # No abbreviations: a typo must not become another flag.
    return AsyncEngineArgs.add_cli_args(Parser(add_help=False, allow_abbrev=False))


def _flag(key: str) -> str:
    root, dot, nested = key.partition(".")
    return "--" + root.replace("_", "-") + dot + nested


def _words(parser: Any, key: str, text: str) -> list[str]:
    """The command line that says what the parameter says."""
    flag = _flag(key)
    action = parser._option_string_actions.get(flag.partition(".")[0])
    if action is None or key.partition(".")[0].replace("_", "-") not in _names(action):
        raise _unknown(parser, key)
    if isinstance(action, argparse.BooleanOptionalAction) or action.nargs == 0:
        return _switch(action, flag, text)
    if action.nargs in ("+", "*") and text.lstrip().startswith("["):
        return [flag, *_items(text)]
    return [f"{flag}={text}"]


def _names(action: argparse.Action) -> list[str]:
    """The action's flags without dashes, its ``--no-…`` forms left out."""
    return [option[2:] for option in action.option_strings if option.startswith("--") and option[:5] != "--no-"]


def _unknown(parser: Any, key: str) -> _Refused:
    known = [name.replace("-", "_") for action in parser._actions for name in _names(action)]
    if key.startswith("no_") and key[3:] in known:
        return _Refused("a switch is named without no_", f'Set {key[3:]} to "false"')
    near = difflib.get_close_matches(key, known, n=3)
    remedy = f"The nearest known: {', '.join(near)}" if near else "`vllm serve --help` lists the engine flags"
    return _Refused("no such parameter", remedy)


def _switch(action: argparse.Action, flag: str, text: str) -> list[str]:
    try:
        on = Switch().spelled(text)
    except ValueError:
        raise _Refused(f"must be {Switch().words}", "Correct the value") from None
    if on:
        return [flag]
    return ["--no-" + flag[2:]] if isinstance(action, argparse.BooleanOptionalAction) else []


def _items(text: str) -> list[str]:
    try:
        items = strict_json.decode(text)
    except ValueError as error:
        raise _Refused(f"not a JSON list ({error})", 'Write a list as ["a", "b"]') from None
    if not all(isinstance(item, (str, int, float)) for item in items):
        raise _Refused("a list of texts or numbers is wanted", 'Write a list as ["a", "b"]')
    return [str(item) for item in items]
