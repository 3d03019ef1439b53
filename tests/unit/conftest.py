"""The fast layer: no vLLM, also where it is installed, and what the tests of Triton's edge share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rbln_vllm_backend import model_folder

INSIDE_TRITON = Path(__file__).parents[1] / "fakes" / "inside_triton"


@pytest.fixture(autouse=True)
def _no_vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(model_folder, "has_vllm", lambda: False)
    yield
    assert "vllm" not in sys.modules


@pytest.fixture
def pb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The server's module, replaced by one of the same surface; ``triton_*`` modules can be imported behind it."""
    monkeypatch.syspath_prepend(str(INSIDE_TRITON))
    import triton_python_backend_utils

    return triton_python_backend_utils
