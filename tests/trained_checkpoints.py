"""The trained checkpoints, made once and kept by the content of their maker: about three minutes, one core busy.

``python tests/trained_checkpoints.py FOLDER`` makes them below FOLDER when they aren't there, and prints the path:
``target``, its drafts ``draft_model``, ``eagle``, ``eagle3`` and ``medusa``, and ``mtp_target``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent


def trained_checkpoints(parent: Path = TESTS / ".cache") -> Path:
    """The folder of the checkpoints, made by a process of its own when absent.

    A process of its own: training would leave its threads and settings to the engines that a test starts later.
    """
    folder = _folder(parent)
    if not folder.exists():
        subprocess.run([sys.executable, __file__, str(parent)], check=True, stdout=subprocess.DEVNULL)
    return folder


def _folder(parent: Path) -> Path:
    digest = hashlib.sha256()
    for source in sorted((TESTS / "trained").glob("*.py")):
        digest.update(source.read_bytes())
    for package in ("torch", "transformers", "tokenizers"):
        digest.update(importlib.metadata.version(package).encode())
    return parent / f"trained-{digest.hexdigest()[:12]}"


def _make(folder: Path) -> None:
    """All or nothing: made in a folder beside it, which disappears whatever happens, then renamed."""
    from trained.making import make

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as scratch:
        made = Path(scratch) / "made"
        make(made)
        # Another run at the same time may have been quicker; what it made is the same.
        with contextlib.suppress(OSError):
            made.rename(folder)


def main() -> None:
    # A polite end is an exception too, so that the unfinished folder goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = _folder(Path(sys.argv[1]))
    if not folder.exists():
        _make(folder)
    print(folder)


if __name__ == "__main__":
    main()
