"""The trace that a request belongs to, as W3C headers (https://www.w3.org/TR/trace-context/), for the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping

HEADERS = ("traceparent", "tracestate")


def headers(server_context: str | None, parameters: Mapping[str, object]) -> dict[str, str]:
    """The headers of the server's own span (JSON text, or nothing), else those that a client sent as parameters.

    Triton hands HTTP and gRPC headers on as parameters where it is told to (``--http-header-forward-pattern``). What is
    malformed is left out and never an error, as the standard demands.
    """
    return _read(_decoded(server_context)) or _read(parameters)


def without_headers(parameters: Mapping[str, object]) -> dict[str, object]:
    """The parameters that are about the request itself."""
    return {name: value for name, value in parameters.items() if name.lower() not in HEADERS}


def _read(carrier: Mapping[str, object]) -> dict[str, str]:
    named = {name.lower(): value for name, value in carrier.items()}
    found = {name: value for name in HEADERS if isinstance(value := named.get(name), str) and value}
    return found if HEADERS[0] in found else {}


def _decoded(text: str | None) -> Mapping[str, object]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
