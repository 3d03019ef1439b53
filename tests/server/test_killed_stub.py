"""A killed stub can't be replaced within its server, so the server ends, for whoever looks after it to start anew."""

from __future__ import annotations

import time
from pathlib import Path

from model_repository import write_ticking_model

from .processes import gone
from .serving import serving

ENDED_S = 60.0


def test_serve_ends_with_a_status_when_a_stub_was_killed(tmp_path: Path) -> None:
    write_ticking_model(tmp_path / "models", "llm")
    with serving(tmp_path / "models", tmp_path / "log") as serve:
        everything = serve.descendants()
        (stub,) = (one for one in everything if "triton_python_backend_stub" in one.name())
        stub.kill()
        killed_at = time.monotonic()
        assert serve.process.wait(ENDED_S) == 1
        print(f"ended after {time.monotonic() - killed_at:.1f} s")
        assert gone(everything)
    words = "tritonserver has lost a model's process: it was killed, or taken for dead while it loaded"
    assert words in (tmp_path / "log").read_text()
