"""A process that answers each line of JSON with one: the load generator, and the engine without a door."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import psutil

from comparison.load import Outcome

_FOLDER = Path(__file__).parents[1]


class LineProcess:
    """``python -m comparison.MODULE``; its errors go to the log."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        log: IO[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"comparison.{module}", *arguments],
            cwd=_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=env,
        )
        self.process = psutil.Process(self._process.pid)

    def run(self, job: object) -> Outcome:
        """Sends the job and waits for its outcome."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job).decode() + "\n")
        self._process.stdin.flush()
        return Outcome.of_line(self.answer())

    def answer(self) -> str:
        """The next line; the process has died if there is none."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with status {self._process.wait()}; its log says why")
        return line

    def stop(self) -> None:
        """Ends its input, and so the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
