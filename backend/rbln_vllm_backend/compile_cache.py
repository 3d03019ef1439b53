"""Builds the compile cache of a model folder on a host without an NPU, so that an image or a volume can carry it.

vllm-rbln's own compile-only mode does the work: the engine is started, compiles every graph of its warm-up for the
named NPU, and writes one bundle for each rank, ``VLLM_CACHE_ROOT/rbln/<model>/<signature>/rank<n>/mega_cache.bin``
(``vllm_rbln/v1/worker/mega_cache.py`` of 0.12.0). It only logs a bundle that it can't write: so they are looked for.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rbln_vllm_backend import environment, npu_groups, rbln_platform
from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.errors import BackendError
from rbln_vllm_backend.model_folder import ModelFolder
from rbln_vllm_backend.vllm_engine import VllmEngine

CACHE_ROOT = "VLLM_CACHE_ROOT"
_PROGRESS_INTERVAL_S = 15.0
_BUNDLE = "mega_cache.bin"


class CompileError(BackendError):
    """The cache is not complete; the text says what to do."""


def compile_model(
    folder: ModelFolder, npu: str | None, cache: Path | None, tell: Callable[[str], None] = print
) -> None:
    """Returns once the cache is complete, after minutes on a real model.

    Args:
        folder: the model; its parameters are those that the server will use, or other graphs would be built.
        npu: the NPU to compile for, such as RBLN-CR03; None takes RBLN_FORCE_NPU_NAME.
        cache: where to; None takes VLLM_CACHE_ROOT, of the model's ``env.`` parameters or of this process.
        tell: takes a line at a time on how far it is.

    Raises:
        ConfigError, EngineStartError: the model can't be served.
        CompileError: it can't be compiled here, or a bundle is missing at the end.
    """
    settings = folder.check()
    variables = {**settings.environment, **_variables(settings, npu, cache)}
    environment.prepare(variables, settings.platform)
    root = Path(variables[CACHE_ROOT]) / "rbln"
    ranks = npu_groups.ranks(settings.engine_flags)
    tell(f"compiling for {variables[rbln_platform.NPU_NAME]} into {root}, {ranks} rank{'s' if ranks > 1 else ''}")
    began_ns, engine = time.time_ns(), VllmEngine(settings)
    with _progress(root, tell):
        try:
            tell(engine.start())
        finally:
            engine.stop()
    written = complete_bundles(root, ranks, began_ns)
    if written is None:
        raise CompileError(
            f"The cache is not complete: no {_BUNDLE} of every rank was written below {root}. The log above has the "
            f"cause; if the cache was complete before, delete {root} and compile anew."
        )
    tell(f"complete: {written}")


def complete_bundles(root: Path, ranks: int, since_ns: int) -> Path | None:
    """The folder with the bundles of all ranks, written since then; None if there is none."""
    for signature in root.glob("*/*"):
        bundles = [signature / f"rank{rank}" / _BUNDLE for rank in range(ranks)]
        if all(bundle.is_file() and bundle.stat().st_mtime_ns >= since_ns for bundle in bundles):
            return signature
    return None


def _variables(settings: BackendConfig, npu: str | None, cache: Path | None) -> dict[str, str]:
    if not settings.platform.is_rbln:
        raise CompileError(
            f"Only engines on NPUs compile, and the platform is {settings.platform}. "
            f'Set {rbln_platform.OPTION} to "rbln", and install vllm-rbln and rebel-compiler here.'
        )
    if settings.engine_flags.get("model_impl") != "vllm":
        raise CompileError('The vllm implementation is compiled ahead, no other: set model_impl to "vllm".')
    name = npu or rbln_platform.npu_name({**os.environ, **settings.environment})
    if not name:
        raise CompileError(
            f"Which NPU to compile for is not known: give --npu RBLN-CR03, or set {rbln_platform.NPU_NAME}."
        )
    root = str(cache.resolve()) if cache else settings.environment.get(CACHE_ROOT) or os.environ.get(CACHE_ROOT)
    if not root:
        raise CompileError(f"Where the cache goes is not known: give --cache FOLDER, or set env.{CACHE_ROOT}.")
    return {"VLLM_RBLN_COMPILE_ONLY": "1", rbln_platform.NPU_NAME: name, CACHE_ROOT: root}


@contextmanager
def _progress(root: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Says from time to time how long it has taken and what lies in the cache."""
    over, began = threading.Event(), time.monotonic()

    def report() -> None:
        while not over.wait(_PROGRESS_INTERVAL_S):
            sizes = [file.stat().st_size for file in root.rglob("*") if file.is_file()]
            tell(f"{time.monotonic() - began:.0f} s: {len(sizes)} files, {sum(sizes) / 2**20:.1f} MiB in the cache")

    thread = threading.Thread(target=report, name="compile-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
