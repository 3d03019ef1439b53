"""What a ``model`` value names: a folder on this host, or a hub id that is left to vLLM."""

from __future__ import annotations

from pathlib import Path

from rbln_vllm_backend.errors import Fault

_PATH_STARTS = ("/", "./", "../", "~")


def resolve(key: str, value: str, folder: Path, marker: str = "config.json") -> tuple[str, Fault | None]:
    """The value as the engine gets it, and what is wrong with it.

    A value that starts with ``/``, ``./``, ``../`` or ``~`` is a path, relative to the folder of config.pbtxt, and
    must be a checkpoint, which ``marker`` is a file of; anything else is a hub id.
    """
    if not value.startswith(_PATH_STARTS):
        return value, None
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:  # no home folder for that user
        return value, Fault(key, f"the path can't be expanded ({error})", "Give the whole path", value)
    path = path if path.is_absolute() else (folder / path).resolve()
    if not path.exists():
        return str(path), Fault(key, f"the path {path} doesn't exist", _remedy(path), value)
    if not (path / marker).is_file():
        return str(path), Fault(key, f"{path} holds no {marker}", "Name the folder of a checkpoint", value)
    return str(path), None


def _remedy(path: Path) -> str:
    from rbln_vllm_backend.demo_model import DEFAULT_FOLDER

    if path == DEFAULT_FOLDER:
        return "Make the demo model with `rbln-vllm-backend demo-model`, or name another checkpoint"
    return "Name a checkpoint folder that the server can read, or a hub id without a leading / . or ~"
