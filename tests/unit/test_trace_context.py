"""A request's place in a trace: from the server's span, else from the client's headers, never an error."""

from __future__ import annotations

import json

import pytest

from rbln_vllm_backend.trace_context import headers, without_headers

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01"


def test_the_servers_span_is_the_parent_where_it_has_one() -> None:
    assert headers(json.dumps({"traceparent": PARENT}), {"traceparent": OTHER}) == {"traceparent": PARENT}


def test_else_the_clients_headers_are() -> None:
    parameters = {"traceparent": OTHER, "TraceState": "a=b", "max_tokens": 3}
    assert headers(None, parameters) == {"traceparent": OTHER, "tracestate": "a=b"}
    assert without_headers(parameters) == {"max_tokens": 3}


@pytest.mark.parametrize(
    "context", [None, "", "{}", "null", "[]", "no json", '{"traceparent": 3}', '{"traceparent": ""}']
)
def test_no_trace_and_what_is_malformed_are_the_same(context: str | None) -> None:
    assert headers(context, {"traceparent": 7, "tracestate": "a=b"}) == {}
