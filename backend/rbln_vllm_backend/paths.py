"""What a ``model`` value names: a folder on this host, or a hub id that is left to vLLM."""

from __future__ import annotations

from pathlib import Path

from rbln_vllm_backend.errors import Fault

_PATH_STARTS = ("/", "./", "../", "~")
# The file that tells what a folder is.
CHECKPOINT = "config.json"
ADAPTER = "adapter_config.json"


def resolve(key: str, value: str, folder: Path, marker: str = CHECKPOINT) -> tuple[str, Fault | None]:
    """The value as the engine gets it, and what is wrong with it.

    A value that starts with ``/``, ``./``, ``../`` or ``~`` is a path, relative to the folder of config.pbtxt, and
    must be a checkpoint, which ``marker`` is a file of; anything else is a hub id.
    """
    if not value.startswith(_PATH_STARTS):
        return value, None
    try:
        path = Path(value).expanduser()
        path = path if path.is_absolute() else (folder / path).resolve()
        exists, is_checkpoint = path.exists(), (path / marker).is_file()
    except RuntimeError as error:  # no home folder for that user
        return value, Fault(key, f"the path can't be expanded ({error})", "Give the whole path", value)
    except (OSError, ValueError) as error:  # too long, or with a NUL in it
        return value, Fault(key, f"not a path that can be looked up ({_reason(error)})", "Correct the path", value)
    if not exists:
        return str(path), Fault(key, f"the path {path} doesn't exist", _remedy(path), value)
    if not is_checkpoint:
        kind = "an adapter" if marker == ADAPTER else "a checkpoint"
        return str(path), Fault(key, f"{path} holds no {marker}", f"Name the folder of {kind}", value)
    return str(path), None


def _reason(error: OSError | ValueError) -> str:
    """Without the path, which the message has already."""
    return str(error.strerror) if isinstance(error, OSError) else refusal(error)


def refusal(error: Exception) -> str:
    """Why a path wasn't looked up. A bare ValueError is a NUL, which each Python words in its own way."""
    return "it holds a NUL" if type(error) is ValueError else str(error)


def _remedy(path: Path) -> str:
    from rbln_vllm_backend.demo_model import DEFAULT_FOLDER

    if path == DEFAULT_FOLDER:
        return "Make the demo model with `rbln-vllm-backend demo-model`, or name another checkpoint"
    return "Name a checkpoint folder that the server can read, or a hub id without a leading / . or ~"
