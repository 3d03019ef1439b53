"""Requests of any kind, good and bad, as Hypothesis strategies: tensors, request parameters, JSON shapes, unicode."""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rbln_vllm_backend import sampling
from rbln_vllm_backend.wire import INPUTS, RETURN_SWITCHES

NAMES = [*sampling.PARAMETERS, *sampling.NOT_OURS, "id", "timeout", "temprature", "max_new_tokens"]


def many(examples: int) -> settings:
    """As many examples, the same in every run, or RBLN_GENERATED_REQUESTS of them, others in every run."""
    wished = os.environ.get("RBLN_GENERATED_REQUESTS")
    return settings(
        max_examples=int(wished or examples),
        derandomize=wished is None,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def written(document: Any) -> bytes:
    """As Python's JSON writes it, NaN and halves of surrogate pairs included."""
    return json.dumps(document).encode()


# Halves of surrogate pairs, NUL, marks that combine, and emoji among the rest.
texts = st.one_of(
    st.text(max_size=12),
    st.text(st.characters(categories=["Cs", "Cc", "Mn", "So"]), max_size=4),
    st.sampled_from(["true", "false", "0.1", "1e5", "NaN", "-1", " 1 ", "[]", "{}", "null", '"x"', "{{ x }}", "((("]),
)
numbers = st.one_of(
    st.integers(-3, 30),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.floats(0, 2),
    st.sampled_from([2**31 - 1, 2**31, 2**63, 2**64, 1e308]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)
constraints = st.dictionaries(
    st.sampled_from(["json", "regex", "choice", "grammar", "json_object", "structural_tag", "whitespace_pattern", "x"]),
    values,
    max_size=2,
)
fields = st.dictionaries(st.one_of(st.sampled_from(NAMES), texts), st.one_of(scalars, values, constraints), max_size=4)
message = st.fixed_dictionaries(
    {"role": st.one_of(st.sampled_from(["user", "assistant", "system", "tool"]), scalars), "content": values},
    optional={"tool_calls": values, "name": values},
)
broken = st.one_of(st.binary(max_size=12), fields.map(written).map(lambda text: text[:-1]), st.just(b"[" * 5000))
documents = st.one_of(fields.map(written), fields.map(written), values.map(written), broken)
prompts = st.one_of(
    st.fixed_dictionaries({"text_input": texts.map(lambda text: [text.encode("utf-8", "replace")])}),
    st.fixed_dictionaries({"text_input": st.lists(st.binary(max_size=8), max_size=2)}),
    st.fixed_dictionaries({"messages": st.lists(message, max_size=3).map(lambda chat: [written(chat)])}),
    st.fixed_dictionaries({"messages": documents.map(lambda one: [one])}),
    st.fixed_dictionaries({"input_ids": st.lists(st.integers(-5, 520), max_size=6)}),
    st.fixed_dictionaries({}),
)
elements = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.floats(width=32), documents)
switches = st.dictionaries(
    st.sampled_from(["stream", *RETURN_SWITCHES]), st.lists(st.booleans(), min_size=1, max_size=1)
)
# Whatever Triton lets through, and what it wouldn't: wrong types and sizes under every name.
anything = st.dictionaries(
    st.sampled_from([tensor.name for tensor in INPUTS]), st.lists(elements, max_size=2), max_size=2
)


@st.composite
def tensors(draw: st.DrawFn, odd: st.SearchStrategy[dict[str, list[object]]] = anything) -> dict[str, list[object]]:
    """Input tensors by name: a prompt of some kind, switches, sampling parameters, and further ones of any type."""
    drawn: dict[str, list[object]] = {**draw(prompts), **draw(switches)}
    if draw(st.booleans()):
        drawn["sampling_parameters"] = [draw(documents)]
    if draw(st.integers(0, 3)) == 0:
        drawn.update(draw(odd))
    return drawn


parameters = st.dictionaries(st.one_of(st.sampled_from(NAMES), texts), scalars, max_size=3)
