"""A request's span in vLLM is a child of the trace that the request came with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_repository import small_engine
from rbln_vllm_backend.engine import Generation

from .conftest import EngineOnALoop, started

TRACE, PARENT = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
NOWHERE = "http://127.0.0.1:9"
HEADERS = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01"}


@pytest.fixture(scope="module")
def exporter() -> Any:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def traced(checkpoint: Path, exporter: Any) -> Iterator[EngineOnALoop]:
    from vllm.tracing import otel

    with pytest.MonkeyPatch.context() as patch:
        # Only this process's spans: the engine core's go to the endpoint, where nobody listens.
        patch.setattr(otel, "get_span_exporter", lambda endpoint: exporter)
        # vLLM puts it into the environment for its children; engines of other tests are not to find it there.
        patch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", NOWHERE)
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # seconds for which the core's last spans are tried, at its end
        parameters = small_engine(checkpoint, otlp_traces_endpoint=NOWHERE)
        with started(parameters) as engine:
            yield engine


def asked(engine: EngineOnALoop, name: str, headers: dict[str, str]) -> None:
    generation = Generation(name, "one two three", {"max_tokens": 4}, stream=True, trace_headers=headers)

    async def read() -> None:
        async for _ in engine.engine.generate(generation):
            pass

    engine.loop.run(read()).result(timeout=120)


def test_the_engines_span_belongs_to_the_requests_trace(traced: EngineOnALoop, exporter: Any) -> None:
    from opentelemetry import trace

    asked(traced, "with", HEADERS)
    asked(traced, "without", {})
    trace.get_tracer_provider().force_flush()  # type: ignore[attr-defined]
    # vLLM has spans of its own start too.
    requests = [span for span in exporter.get_finished_spans() if span.name == "llm_request"]
    spans = {span.attributes["gen_ai.request.id"]: span for span in requests}
    assert (spans["with"].context.trace_id, spans["with"].parent.span_id) == (TRACE, PARENT)
    assert spans["with"].attributes["gen_ai.usage.completion_tokens"] == 4
    assert spans["without"].parent is None
