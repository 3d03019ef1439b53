"""Where each microsecond per token goes in the stub of this backend: a profile at 64 streams, by part and by thread.

A tritonserver with the tiny checkpoint is driven as ``serving_comparison.py`` drives it. The kernel says how much CPU
each thread of the stub took; py-spy's samples (``pip install py-spy``; it has to be on PATH) tell how that is shared.

    python benchmarks/stub_profile.py [--streams 64] [--seconds 10] [--output FILE]
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import psutil  # noqa: E402
from comparison.contestants import Run, doors, triton  # noqa: E402
from comparison.line_process import LineProcess  # noqa: E402
from comparison.stacks import part_of  # noqa: E402

import tiny_checkpoint  # noqa: E402
from model_repository import small_engine  # noqa: E402

MAX_TOKENS = 128
SEED = 20261129
_SETTLED_S = 2.0  # until the first prompts are behind
_MOST_TOKENS_PER_S = 6000
# Thread id, name, frames, count, as py-spy writes them.
_STACK = re.compile(r"thread \((\d+)\)(?:: ([^;]*))?;?(.*) (\d+)")


def main() -> int:
    """Prints both tables, and writes them where that is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    if shutil.which("py-spy") is None:
        parser.error("py-spy is not on PATH; `pip install py-spy` brings it")
    command = shlex.join(["python", "benchmarks/stub_profile.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory() as folder:
        text = f"Made by `{command}`.\n\n" + _measured(Path(folder), options.streams, options.seconds)
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)
    return 0


def _measured(folder: Path, streams: int, seconds: int) -> str:
    checkpoint = tiny_checkpoint.make(folder / "checkpoint", always_text=True)
    load = LineProcess("load_process")
    with triton(folder, small_engine(checkpoint, max_num_seqs=str(streams))) as (server, _):
        (door,) = doors(server, load, unary=False)
        door.run(Run(8, 16, 32, SEED - 1))
        stub = _stub(door.root)
        # Requests for the whole profile; those that are left when it is over are run to their end.
        requests = max(2 * streams, (seconds + 5) * _MOST_TOKENS_PER_S // MAX_TOKENS)
        with ThreadPoolExecutor(1) as pool:
            outcome = pool.submit(door.run, Run(streams, requests, MAX_TOKENS, SEED))
            time.sleep(_SETTLED_S)
            before, began = _thread_seconds(stub), time.perf_counter()
            samples = _samples(stub, seconds, folder / "stacks.txt")
            after, lasted_s = _thread_seconds(stub), time.perf_counter() - began
            done = outcome.result()
    load.stop()
    speed = (done.requests - done.failed) * MAX_TOKENS / done.duration_s
    used = {thread: after[thread] - before.get(thread, 0.0) for thread in after}
    head = (
        f"{streams} streams, {speed:.0f} tokens/s, {done.responses / done.requests / MAX_TOKENS:.2f} responses per "
        f"token, {done.failed} failed; the profile lasted {lasted_s:.0f} s.\n\n"
    )
    return head + _tables(used, samples, speed * lasted_s)


def _stub(root: psutil.Process | None) -> psutil.Process:
    assert root is not None
    lines = {child: " ".join(child.cmdline()) for child in root.children(recursive=True)}
    (stub,) = (child for child, line in lines.items() if "python_backend_stub" in line and "/llm/" in line)
    return stub


def _thread_seconds(process: psutil.Process) -> dict[int, float]:
    """CPU seconds so far, by thread id."""
    return {thread.id: thread.user_time + thread.system_time for thread in process.threads()}


def _samples(process: psutil.Process, seconds: int, file: Path) -> dict[int, tuple[str, Counter[str]]]:
    """By thread id: its name, and py-spy's samples of it by part."""
    # It doesn't stop the process for each sample, which would be measured with the rest.
    words = ["py-spy", "record", "--nonblocking", "--format=raw", "--threads", "--rate=200", f"--duration={seconds}"]
    subprocess.run([*words, f"--output={file}", f"--pid={process.pid}"], check=True, capture_output=True)
    found: dict[int, tuple[str, Counter[str]]] = {}
    for line in file.read_text().splitlines():
        if stack := _STACK.fullmatch(line):
            thread, name, frames, count = stack.groups()
            _, parts = found.setdefault(int(thread), (name or "", Counter()))
            parts[part_of(frames.split(";"))] += int(count)
    return found


def _tables(used_s: Mapping[int, float], samples: Mapping[int, tuple[str, Counter[str]]], tokens: float) -> str:
    by_part: Counter[str] = Counter()
    by_thread: Counter[str] = Counter()
    for thread, seconds in used_s.items():
        name, parts = samples.get(thread, ("", Counter()))
        us = seconds / tokens * 1e6
        by_thread[name or "threads without Python"] += us  # type: ignore[assignment]
        if not parts:
            parts = Counter({"threads without Python: Triton's, ZeroMQ's": 1})
        for part, count in parts.items():
            by_part[part] += us * count / parts.total()  # type: ignore[assignment]
    return _table("part", by_part) + "\n" + _table("thread", by_thread)


def _table(title: str, figures: Mapping[str, float]) -> str:
    lines = [f"| {title} | CPU µs per token |", "|---|---|"]
    lines += [f"| {name} | {us:.1f} |" for name, us in sorted(figures.items(), key=lambda item: -item[1]) if us >= 0.05]
    return "\n".join([*lines, f"| all | {sum(figures.values()):.1f} |", ""])


if __name__ == "__main__":
    sys.exit(main())
