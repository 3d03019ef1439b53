"""The unmodified vllm-rbln over a simulated NPU; run by `make test-rbln` in .venv-rbln, and nowhere else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from rbln.npu_engine import ENVIRONMENT

if importlib.util.find_spec("vllm_rbln") is None:
    collect_ignore_glob = ["*"]

ROOT = Path(__file__).parents[2]
# Before anything imports the plugin, which reads some of them once.
os.environ.update(ENVIRONMENT)


@pytest.fixture(scope="session")
def cache() -> Path:
    """vLLM's cache, kept between runs: learning what a model class is takes a process and seconds for each."""
    return ROOT / "tests" / ".cache" / "vllm-rbln"


@pytest.fixture(scope="session")
def trained() -> Path:
    """The trained checkpoints of the other tests: their maker is .venv, whose versions name the folder."""
    maker = [ROOT / ".venv" / "bin" / "python", ROOT / "tests" / "trained_checkpoints.py", ROOT / "tests" / ".cache"]
    return Path(subprocess.run(maker, check=True, capture_output=True, text=True).stdout.split()[-1])
