"""Who may import what, readable from the file name: ``triton_*`` the server's module, ``vllm_*`` vLLM."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rbln_vllm_backend

PACKAGE = Path(rbln_vllm_backend.__file__).parent
FILES = sorted(PACKAGE.glob("*.py"))
EDGES = {"vllm", "vllm_rbln", "rebel", "torch", "transformers", "triton_python_backend_utils"}
CORE = [file.stem for file in FILES if not file.stem.startswith("triton_")]


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


def allowed_for(stem: str) -> set[str]:
    if stem.startswith("triton_"):
        return {"triton_python_backend_utils"}
    if stem.startswith("vllm_"):
        return {"vllm", "vllm_rbln"}
    # It turns one file format into another, and only when that is asked for.
    return {"torch", "transformers"} if stem == "demo_model" else set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_module_imports_no_edge_but_its_own(file: Path) -> None:
    used = EDGES & set(imports(ast.parse(file.read_text())))
    assert used <= allowed_for(file.stem)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_heavy_is_imported_at_module_level(file: Path) -> None:
    top = ast.Module([node for node in ast.parse(file.read_text()).body if not isinstance(node, ast.FunctionDef)], [])
    for node in ast.walk(top):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = []
    assert not set(imports(top)) & (EDGES - {"triton_python_backend_utils"} | {"tritonclient", "google"})


def test_the_core_is_importable_where_the_edges_are_refused() -> None:
    program = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EDGES!r}:
            raise ImportError(f"{{name}} was imported")
sys.meta_path.insert(0, Refuse())
for name in {CORE!r}:
    __import__("rbln_vllm_backend." + name)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_engine_and_the_service_know_only_the_port() -> None:
    """The application imports the port, never an engine; only the wiring names one."""
    for file in FILES:
        names = {node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)}
        if "rbln_vllm_backend.vllm_engine" in names:
            assert file.stem in ("triton_model", "compile_cache")
