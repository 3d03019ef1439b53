"""Which library keeps the engine to a constraint, and what that one must be told (vLLM 0.30 and 0.32)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from rbln_vllm_backend import json_schemas, orphan_guard
from rbln_vllm_backend.errors import InvalidRequest

PLUGIN_NAME = "rbln_vllm_backend_constraints"
LLGUIDANCE = "guidance"  # as vLLM names it
LOGGER = "vllm.v1.structured_output.backend_guidance"
BEYOND = "A request's constraint went beyond what llguidance allows; its answer ends there."


def choose(arguments: Any) -> None:
    """Chooses llguidance in vLLM's engine arguments, unless they name another library.

    It bounds what a constraint may cost a step, for which all other requests wait; xgrammar, vLLM's choice, doesn't.
    """
    chosen = arguments.structured_outputs_config
    if chosen.backend == "auto":
        chosen.backend = LLGUIDANCE


def prepared(constraint: Mapping[str, Any], library: str) -> Mapping[str, Any]:
    """The constraint as the library takes it.

    Raises:
        InvalidRequest: a structural tag, with llguidance.
    """
    if library != LLGUIDANCE:
        return constraint
    if "structural_tag" in constraint:
        # vLLM hands llguidance the tags, but not so that it would keep to their schemas (0.30 and 0.32).
        rule = "structural_tag needs xgrammar, which the model's structured_outputs_config.backend may name"
        raise InvalidRequest.about("structured_outputs", constraint, rule)
    schema = constraint.get("json")
    if isinstance(schema, str):
        return {**constraint, "json": _told(schema)}
    return constraint


def _told(schema: str) -> str:
    """The schema with closed objects, and with oneOf read as anyOf, both as xgrammar does unasked."""
    try:
        document = json.loads(schema)
    except ValueError:
        return schema  # llguidance says what is wrong with it
    if not isinstance(document, dict):
        return schema
    # Not by vLLM's disable_additional_properties: it closes what is combined too, and only in the engine.
    json_schemas.close(document)
    return json.dumps({"x-guidance": {"coerce_one_of": True}, **document} if '"oneOf"' in schema else document)


def keep_answers_out_of_the_log() -> None:
    """llguidance's errors quote the constraint and the answer, and vLLM logs them in the process of its core.

    This package's entry point in ``vllm.general_plugins``; in processes of other servers it does nothing.
    """
    if orphan_guard.is_armed():
        logging.getLogger(LOGGER).addFilter(_without_quotations)


def _without_quotations(record: logging.LogRecord) -> bool:
    record.msg, record.args = BEYOND, ()
    return True
