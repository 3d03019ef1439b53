"""What vLLM says of flags that it refuses, in one sentence each, named by the parameter where it is known.

vLLM's configuration classes are pydantic's, whose errors are reports of several lines with addresses in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rbln_vllm_backend.errors import Fault

_LONGEST = 1000  # characters; the parser quotes whole values
_HEADING = re.compile(r"^\d+ validation errors? for \w+\s*")
_NOISE = re.compile(r" \[type=[^\n]*|\s*For further information visit \S+")
_ABOVE = re.compile(r"See root cause above\..*", re.DOTALL)
_LOADER = re.compile(r"Value .* cannot be converted to <function loads at \w+>", re.DOTALL)
_VALUE_ERROR = "Value error, "


def sentence(text: str) -> str:
    """The message in one line, without pydantic's heading and addresses; cut to 1000 characters."""
    said = _LOADER.sub("not valid JSON", _HEADING.sub("", _NOISE.sub("", text)).replace(_VALUE_ERROR, ""))
    line = " ".join(_ABOVE.sub("The server's log has the cause, above this", said).split()).rstrip(".")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def faults(error: Exception, flags: Mapping[str, str]) -> list[Fault]:
    """The parameters that the error is about; none where it doesn't say, or names what the file doesn't set."""
    if type(error).__module__.partition(".")[0] == "huggingface_hub":
        remedy = "Name a checkpoint folder, or a hub id that this host can reach"
        return [Fault("model", sentence(str(error)), remedy, flags["model"])]
    return [
        Fault(key, "; ".join(rules), "Correct the value", flags[key])
        for key, rules in _rules(error).items()
        if key in flags
    ]


def _rules(error: Any) -> dict[str, list[str]]:
    """What a pydantic error says of each field. The names of a draft's fields are those of the target's."""
    if not hasattr(error, "errors") or error.title == "SpeculativeConfig":
        return {}
    rules: dict[str, list[str]] = {}
    for one in error.errors():
        if one["loc"]:
            rules.setdefault(str(one["loc"][0]), []).append(sentence(one["msg"]))
    return rules
