"""Finds a tritonserver, or assembles the one inside the wheel nvidia-pytriton.

The wheel holds the server, its Python backend and one stub for each Python version. Assembling links the
backend and the stub of the running Python into one backend directory, and names the libraries they need.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CONTAINER_SERVER = Path("/opt/tritonserver/bin/tritonserver")
PYTHON_VERSION = f"3.{sys.version_info.minor}"
STUB = "triton_python_backend_stub"
OTHERWISE = "or use a tritonserver on PATH, as in NVIDIA's Triton container"


class EmbeddedServerError(Exception):
    """There is no tritonserver to run, or it did not come up; the text says why and what to do."""


@dataclass(frozen=True)
class Server:
    """A tritonserver: its program, the options and the environment variables that it needs."""

    program: str
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def find_server() -> Server:
    """The tritonserver on PATH, else the one in /opt/tritonserver, else the assembled one.

    Raises EmbeddedServerError that says what is missing and which package gives it.
    """
    if on_path := shutil.which("tritonserver"):
        return Server(on_path)
    if os.access(CONTAINER_SERVER, os.X_OK):
        return Server(str(CONTAINER_SERVER))
    try:
        wheel = importlib.metadata.distribution("nvidia-pytriton")
    except importlib.metadata.PackageNotFoundError:
        raise EmbeddedServerError(
            "There is no tritonserver on PATH or in /opt/tritonserver, and no wheel that holds one: "
            f"pip install --no-deps nvidia-pytriton==0.7.0 'numpy<2', {OTHERWISE}."
        ) from None
    return _assemble(Path(str(wheel.locate_file(""))).resolve(), wheel.version)


def _assemble(site_packages: Path, wheel_version: str) -> Server:
    root = site_packages / "pytriton" / "tritonserver"
    stub = _find_stub(root, wheel_version)
    _check_numpy()
    libraries = (libpython_folder(), site_packages / "nvidia_pytriton.libs")
    backends = _backend_directory(root, stub, wheel_version)
    environment = {
        "LD_LIBRARY_PATH": _prepend(libraries, os.environ.get("LD_LIBRARY_PATH")),
        # The stub takes its prefix, and so its site-packages, from the first python3 on PATH.
        "PATH": _prepend([Path(sys.executable).parent], os.environ.get("PATH", os.defpath)),
    }
    return Server(str(root / "bin" / "tritonserver"), (f"--backend-directory={backends}",), environment)


def _prepend(folders: Sequence[Path], existing: str | None) -> str:
    return os.pathsep.join([*map(str, folders), *([existing] if existing else [])])


def _find_stub(root: Path, wheel_version: str) -> Path:
    if not (root / "bin" / "tritonserver").is_file() or not (root / "backends" / "python").is_dir():
        raise EmbeddedServerError(
            f"nvidia-pytriton {wheel_version} is installed, but there is no server in it: "
            f"pip install --no-deps --force-reinstall nvidia-pytriton==0.7.0, {OTHERWISE}."
        )
    stub = root / "python_backend_stubs" / PYTHON_VERSION / STUB
    if not stub.is_file():
        present = [found.parent.name for found in root.glob(f"python_backend_stubs/3.*/{STUB}")]
        known = ", ".join(sorted(present, key=lambda version: int(version.split(".")[1])))
        raise EmbeddedServerError(
            f"nvidia-pytriton {wheel_version} has no Python backend stub for Python {PYTHON_VERSION}: "
            f"use Python {known or '3.11'}, {OTHERWISE}."
        )
    return stub


def _check_numpy() -> None:
    try:
        version = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        raise EmbeddedServerError(
            f"The embedded Triton server needs NumPy 1: pip install 'numpy<2', {OTHERWISE}."
        ) from None
    if int(version.split(".")[0]) >= 2:
        # NumPy 1 was never built for Python 3.13.
        remedy = "pip install 'numpy<2'" if sys.version_info < (3, 13) else "use Python 3.12 with 'numpy<2'"
        raise EmbeddedServerError(
            "The embedded Triton server was built before NumPy 2 and misreads every tensor with "
            f"NumPy {version}: {remedy}, {OTHERWISE}."
        )


def libpython_folder() -> Path:
    """The folder of the running Python's shared library, which the stub loads.

    Raises EmbeddedServerError that names the package if Python was built without it.
    """
    name = f"libpython{PYTHON_VERSION}.so.1.0"
    libdir = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    multiarch = libdir / (sysconfig.get_config_var("MULTIARCH") or "")
    # A relocated build names in LIBDIR a folder of the machine that it was made on.
    for folder in (libdir, multiarch, Path(sys.base_prefix) / "lib"):
        if (folder / name).is_file():
            return folder
    raise EmbeddedServerError(
        f"The Python at {sys.executable} has no shared library {name}: on Debian and Ubuntu install the "
        f"package libpython{PYTHON_VERSION}, with pyenv build it anew with "
        f"PYTHON_CONFIGURE_OPTS=--enable-shared, {OTHERWISE}."
    )


def _backend_directory(root: Path, stub: Path, wheel_version: str) -> Path:
    """A folder with `python/`, the wheel's Python backend and the stub; made once for each wheel."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rbln-vllm-backend"
    # It holds links into the wheel: the wheel of another virtual environment gets another folder.
    place = hashlib.sha256(os.fsencode(root)).hexdigest()[:10]
    final = cache / f"tritonserver-{wheel_version}-py{PYTHON_VERSION}-{place}"
    if final.is_dir():
        return final
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as scratch:
            made = Path(scratch) / "backends"
            _link_backend(made / "python", root, stub)
            try:
                made.rename(final)
            except OSError:
                # Another process was quicker: what it made is the same.
                if not final.is_dir():
                    raise
    except OSError as error:
        raise EmbeddedServerError(
            f"The embedded server can't be assembled in {cache} ({error.strerror}): set XDG_CACHE_HOME to a "
            "folder that can be written to."
        ) from error
    return final


def _link_backend(folder: Path, root: Path, stub: Path) -> None:
    folder.mkdir(parents=True)
    for file in (root / "backends" / "python").iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    if os.access(stub, os.X_OK):
        (folder / STUB).symlink_to(stub)
    else:
        # Some installers drop the run bit, and the wheel's file may not be ours to change.
        shutil.copyfile(stub, folder / STUB)
        (folder / STUB).chmod(0o755)
