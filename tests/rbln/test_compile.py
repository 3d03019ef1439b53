"""`rbln-vllm-backend compile`: on the simulated NPU, that the variables arrive and that it knows when it is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_repository import write_model

from .npu_engine import npu_engine, speculation

pytestmark = pytest.mark.timeout(400)


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rbln_vllm_backend.cli", "compile", str(folder), *options]
    environ = {name: value for name, value in os.environ.items() if name != "RBLN_FORCE_NPU_NAME"}
    return subprocess.run(command, env={**environ, **variables}, capture_output=True, text=True, timeout=300)


def model(trained: Path, cache: Path, folder: Path) -> Path:
    parameters = npu_engine(trained / "target", cache, **speculation("eagle", trained))
    del parameters["env.RBLN_FORCE_NPU_NAME"]
    return write_model(folder, "llm", parameters)


def test_the_cache_is_complete_at_exit_status_0(trained: Path, cache: Path, tmp_path: Path) -> None:
    done = run(model(trained, cache, tmp_path), "--npu", "RBLN-CR13", "--cache", str(tmp_path / "graphs"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (bundle,) = (tmp_path / "graphs" / "rbln").glob("*/*/rank0/mega_cache.bin")
    told = [line for line in done.stdout.splitlines() if line.startswith("compile: ")]
    assert told[0] == f"compile: compiling for RBLN-CR13 into {tmp_path / 'graphs' / 'rbln'}, 1 rank"
    assert told[-1] == f"compile: complete: {bundle.parents[1]}"
    # The engine of this cache: target and draft, each for prefill, decode and a step with drafts.
    assert len(bundle.read_text().split()) >= 4
    assert "npu=RBLN-CR13" in done.stdout + done.stderr


def test_without_a_place_for_the_bundle_it_fails(trained: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "rbln").write_text("a file where the folder should be")
    done = run(model(trained, cache, tmp_path), "--npu", "RBLN-CR03", "--cache", str(tmp_path / "graphs"))
    assert done.returncode == 1
    root = tmp_path / "graphs" / "rbln"
    said = (
        f"The cache is not complete: no mega_cache.bin of every rank was written below {root}. The log above has the "
        f"cause; if the cache was complete before, delete {root} and compile anew."
    )
    assert said in done.stderr.splitlines()


def test_the_npu_has_to_be_named(trained: Path, cache: Path, tmp_path: Path) -> None:
    done = run(model(trained, cache, tmp_path))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "Which NPU to compile for is not known: give --npu RBLN-CR03, or set RBLN_FORCE_NPU_NAME.",
    )
