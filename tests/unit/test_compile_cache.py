"""The command that builds a compile cache: what it needs to know, and when the cache is complete."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from model_repository import config_text
from rbln_vllm_backend import cli, compile_cache


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str, **parameters: str) -> str:
    """The last line of a refusal."""
    (tmp_path / "config.pbtxt").write_text(config_text("llm", {"model": "org/name", **parameters}))
    assert cli.main(["compile", str(tmp_path), *options]) == 1
    return capsys.readouterr().err.splitlines()[-1]


def test_a_cpu_engine_has_nothing_to_compile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, capsys, **{"serving.platform": "cpu"}) == (
        "Only engines on NPUs compile, and the platform is cpu (serving.platform is cpu). "
        'Set serving.platform to "rbln", and install vllm-rbln and rebel-compiler here.'
    )


def test_the_vllm_implementation_alone_is_compiled_ahead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, capsys, **{"serving.platform": "rbln"}) == (
        'The vllm implementation is compiled ahead, no other: set model_impl to "vllm".'
    )


def test_the_npu_and_the_folder_have_to_be_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RBLN_FORCE_NPU_NAME", raising=False)
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    vllm = {"serving.platform": "rbln", "model_impl": "vllm"}
    assert said(tmp_path, capsys, **vllm) == (
        "Which NPU to compile for is not known: give --npu RBLN-CR03, or set RBLN_FORCE_NPU_NAME."
    )
    assert said(tmp_path, capsys, "--npu", "RBLN-CR03", **vllm) == (
        "Where the cache goes is not known: give --cache FOLDER, or set env.VLLM_CACHE_ROOT."
    )


def bundle(root: Path, rank: int, signature: str = "s1") -> Path:
    path = root / "model" / signature / f"rank{rank}" / "mega_cache.bin"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    return path


def test_a_cache_is_complete_with_the_bundle_of_every_rank(tmp_path: Path) -> None:
    bundle(tmp_path, 0)
    assert compile_cache.complete_bundles(tmp_path, 2, 0) is None
    bundle(tmp_path, 1, "s2")
    assert compile_cache.complete_bundles(tmp_path, 2, 0) is None
    bundle(tmp_path, 1)
    assert compile_cache.complete_bundles(tmp_path, 2, 0) == tmp_path / "model" / "s1"


def test_bundles_of_an_earlier_run_do_not_count(tmp_path: Path) -> None:
    written_ns = bundle(tmp_path, 0).stat().st_mtime_ns
    assert compile_cache.complete_bundles(tmp_path, 1, written_ns + 1) is None
    assert compile_cache.complete_bundles(tmp_path, 1, time.time_ns() - 60 * 10**9) is not None
