#!/usr/bin/env python3
"""Makes .venv from the lock files; does nothing if that is done already.

``--dev`` adds the tools of the tests; ``--rbln`` makes .venv-rbln instead, with the RBLN plugin and a simulated NPU.
The variable PYTHON names the Python to use, a 3.11 or 3.12.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPU_LOCK = ROOT / "requirements" / "cpu.lock"
DEV_LOCK = ROOT / "requirements" / "dev.lock"
RBLN_LOCK = ROOT / "requirements" / "rbln-simulated.lock"
PROJECT = ROOT / "pyproject.toml"
SIMULATED_NPU = ROOT / "tests" / "rbln" / "simulated_npu"
# Run by the Python in question, which may be too old for anything more.
CHECK = """
import sys
if sys.version_info[:2] not in ((3, 11), (3, 12)):
    sys.exit("it is Python %d.%d, but vLLM needs 3.11 and NumPy 1 ends with 3.12" % sys.version_info[:2])
sys.path.insert(0, sys.argv[1])
from rbln_vllm_backend.server_assembly import EmbeddedServerError, libpython_folder
try:
    libpython_folder()
except EmbeddedServerError as error:
    sys.exit(str(error))
"""
CUDA_TORCH = """torch {version} is a CUDA build, which does not work here. Take it from PyTorch's CPU index:
    rm -r {folder}
    export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"""


class SetupError(Exception):
    """The environment can't be made; the text says what to do."""


def main() -> int:
    """Exit status 0 once the environment is complete, else 1."""
    parser = argparse.ArgumentParser(description="Makes .venv from the lock files, unless that is done already.")
    parser.add_argument("--dev", action="store_true", help="add the tools of the tests")
    parser.add_argument("--rbln", action="store_true", help="make .venv-rbln, for the tests on the RBLN plugin")
    options = parser.parse_args()
    # Two set-ups at once would break each other's work.
    with CPU_LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if options.rbln:
                set_up_rbln(Venv(ROOT / ".venv-rbln"))
            else:
                set_up(Venv(ROOT / ".venv"), options.dev)
        except SetupError as error:
            print(f"setup: {error}", file=sys.stderr)
            return 1
    return 0


def set_up(venv: Venv, dev: bool) -> None:
    """The environment that users and most tests run in."""
    venv.install_once("cpu", [CPU_LOCK, PROJECT], lambda: venv.install_runtime(CPU_LOCK))
    if dev:
        name = f"installing {DEV_LOCK.relative_to(ROOT)}"
        venv.install_once("dev", [DEV_LOCK], lambda: venv.pip(name, "--no-deps", "-r", DEV_LOCK))


def set_up_rbln(venv: Venv) -> None:
    """vLLM 0.30, the RBLN plugin as released, and what stands for its compiler and device."""

    def install() -> None:
        venv.install_runtime(RBLN_LOCK)
        parts = [word for folder in (SIMULATED_NPU, SIMULATED_NPU / "vllm_alias") for word in ("-e", folder)]
        venv.pip("installing the simulated NPU", "--no-deps", "--no-build-isolation", *parts)

    venv.install_once("rbln", [RBLN_LOCK, PROJECT, *sorted(SIMULATED_NPU.rglob("pyproject.toml"))], install)


class Venv:
    """One virtual environment of the project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def install_once(self, name: str, sources: Sequence[Path], install: Callable[[], None]) -> None:
        """Installs, unless the stamp in the environment says that just these sources were installed at this place."""
        stamp = self.folder / f"{name}.stamp"
        content = b"\0".join([os.fsencode(ROOT), *(source.read_bytes() for source in sources)])
        wanted = hashlib.sha256(content).hexdigest()
        if stamp.exists() and stamp.read_text() == wanted and os.access(self.python, os.X_OK):
            return
        stamp.unlink(missing_ok=True)
        self.make()
        self.forget_half_installed()
        install()
        # Written last and in one go: an interrupted installation is never taken as done.
        scratch = stamp.with_suffix(".new")
        scratch.write_text(wanted)
        scratch.replace(stamp)

    def make(self) -> None:
        """Makes an empty environment, or completes one."""
        if not self.has_pip():
            run(f"making {self.folder.name}", [find_python(), "-m", "venv", self.folder])
        if fault := fault_of(str(self.python)):
            advice = "Delete it, set PYTHON to another Python, and try again."
            raise SetupError(f"{self.folder.name} can't be used: {fault}. {advice}")

    def has_pip(self) -> bool:
        """Whether the environment was made to its end, and its Python is still there."""
        if not self.python.exists():
            return False
        return subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True).returncode == 0

    def forget_half_installed(self) -> None:
        """Makes pip install anew what it was interrupted in: it takes any folder of metadata as installed."""
        for metadata in self.folder.glob("lib/python3.*/site-packages/*.dist-info"):
            record = metadata / "RECORD"
            # pip's last act on a package is to add its own INSTALLER to the record.
            if not record.exists() or f"{metadata.name}/INSTALLER," not in record.read_text():
                print(f"setup: {metadata.name} was left half installed", flush=True)
                shutil.rmtree(metadata)

    def install_runtime(self, lock: Path) -> None:
        """torch first: a wrong one is several GB, and should be known before the rest."""
        torch = next(line for line in lock.read_text().splitlines() if line.startswith("torch=="))
        self.pip(f"installing {torch}", "--no-deps", torch)
        self.check_torch()
        self.pip(f"installing {lock.relative_to(ROOT)}", "--no-deps", "-r", lock)
        self.pip("installing this project", "--no-deps", "--no-build-isolation", "-e", ROOT)

    def check_torch(self) -> None:
        """Looks whether torch was built for the CPU, without the seconds that an import takes."""
        facts = runpy.run_path(str(next(self.folder.glob("lib/python3.*/site-packages/torch/version.py"))))
        if facts.get("cuda") is not None:
            raise SetupError(CUDA_TORCH.format(version=facts["__version__"], folder=self.folder.name))

    def pip(self, what: str, *arguments: str | Path) -> None:
        """Installs with the environment's own pip."""
        run(what, [self.python, "-m", "pip", "install", "--disable-pip-version-check", *arguments])


def find_python() -> str:
    """$PYTHON, else the first of the usual names that can run vLLM and the embedded server."""
    named = os.environ.get("PYTHON")
    faults = {}
    for name in [named] if named else ["python3", "python3.12", "python3.11"]:
        fault = fault_of(name)
        if not fault:
            return name
        faults[name] = fault
    reasons = "\n".join(f"    {name}: {fault}" for name, fault in faults.items())
    raise SetupError(f"No Python to use; set PYTHON to a Python 3.11 or 3.12.\n{reasons}")


def fault_of(python: str) -> str:
    """What is wrong with this Python; empty if nothing is."""
    if shutil.which(python) is None:
        return "it is not installed"
    check = subprocess.run([python, "-c", CHECK, ROOT / "backend"], capture_output=True, text=True)
    return check.stderr.strip() if check.returncode else ""


def run(what: str, command: Sequence[str | Path]) -> None:
    """Runs one step, and says what and how long. Raises SetupError if it fails."""
    print(f"setup: {what} …", flush=True)
    began = time.monotonic()
    status = subprocess.run(command).returncode
    if status:
        raise SetupError(f"{what} failed with status {status}; a second try goes on from here.")
    print(f"setup: {what} took {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
