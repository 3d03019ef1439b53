"""What the engine and the server layer share: the tiny checkpoint, made once and kept by the content of its maker."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trained_checkpoints import trained_checkpoints

TESTS = Path(__file__).parent


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The folder of the tiny random checkpoint (float32, 512 tokens of vocabulary, 2048 of context)."""
    maker = TESTS / "tiny_checkpoint.py"
    folder = TESTS / ".cache" / f"tiny-{hashlib.sha256(maker.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "made"
            subprocess.run([sys.executable, str(maker), str(made)], check=True, capture_output=True)
            # Another run at the same time may have been quicker; what it made is the same.
            with contextlib.suppress(OSError):
                made.rename(folder)
    return folder


@pytest.fixture(scope="session")
def trained() -> Path:
    """The folder of the trained checkpoints: `target`, its drafts, and `mtp_target`; made once, in about 4 minutes."""
    return trained_checkpoints()
