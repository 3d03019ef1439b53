"""How a value stands in a message."""

from __future__ import annotations

import pytest

from rbln_vllm_backend.errors import shown


@pytest.mark.parametrize(
    "value",
    [
        "x" * 77,
        "x" * 78,
        "x" * 79,
        "x" * 500,
        b"x" * 500,
        [1] * 26,
        [1] * 27,
        [1] * 500,
        {str(n): n for n in range(500)},
    ],
)
def test_a_value_is_shown_as_its_repr_cut_to_80_characters(value: object) -> None:
    whole = repr(value)
    assert shown(value) == (whole if len(whole) <= 80 else whole[:79] + "…")
