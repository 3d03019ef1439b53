"""What the engine and the server layer share: the tiny checkpoint, made once and kept by the content of its maker."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The folder of the tiny random checkpoint (float32, 512 tokens of vocabulary, 2048 of context)."""
    maker = TESTS / "tiny_checkpoint.py"
    folder = TESTS / ".cache" / f"tiny-{hashlib.sha256(maker.read_bytes()).hexdigest()[:12]}"
    if not (folder / "config.json").is_file():
        making = folder.with_name(folder.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        subprocess.run([sys.executable, str(maker), str(making)], check=True, capture_output=True)
        making.rename(folder)
    return folder
