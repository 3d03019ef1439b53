"""What the unit tests of Triton's edge share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

INSIDE_TRITON = Path(__file__).parents[1] / "fakes" / "inside_triton"


@pytest.fixture
def pb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The server's module, replaced by one of the same surface; ``triton_*`` modules can be imported behind it."""
    monkeypatch.syspath_prepend(str(INSIDE_TRITON))
    import triton_python_backend_utils

    return triton_python_backend_utils
