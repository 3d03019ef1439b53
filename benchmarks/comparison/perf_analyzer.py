"""NVIDIA's perf_analyzer as another load generator: found, or assembled where the C library is too old for it.

Its wheel needs glibc 2.38. On an older system (Debian 12) it runs through the loader of Debian 13, whose libraries are
unpacked into a folder and never installed.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from comparison.load import Outcome, percentile_ms

VERSION = "2.60.0"
_GLIBC = (2, 38)
_LIBRARIES = ("libc6", "libgcc-s1", "libssl3t64", "libstdc++6", "libzstd1", "zlib1g")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_INPUTS = Path(__file__).parents[1] / "perf_analyzer" / "inputs.json"


def command(cache: Path) -> list[str]:
    """The words that start perf_analyzer; what has to be fetched for it is kept in ``cache``."""
    if on_path := shutil.which("perf_analyzer"):
        return [on_path]
    program = cache / "perf_analyzer" / "bin" / "perf_analyzer"
    if not program.exists():
        _fetch_program(cache)
    program.chmod(0o755)
    if tuple(map(int, platform.libc_ver()[1].split("."))) >= _GLIBC:
        return [str(program)]
    libraries = cache / "debian13" / "usr" / "lib" / "x86_64-linux-gnu"
    if not libraries.exists():
        _fetch_libraries(cache)
    return [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries), str(program)]


def _fetch_program(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    wheel = ["--no-deps", "--platform=manylinux_2_38_x86_64", "--only-binary=:all:", f"perf-analyzer=={VERSION}"]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", str(cache), *wheel], check=True)
    with zipfile.ZipFile(next(cache.glob("perf_analyzer-*.whl"))) as archive:
        archive.extractall(cache)


def _fetch_libraries(cache: Path) -> None:
    """Debian 13's packages, by an apt whose lists and state are its own; the system's stay as they are."""
    apt = cache / "apt"
    for folder in ("lists/partial", "cache/archives/partial", "packages"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    sources = apt / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian trixie main\n")
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    subprocess.run(["apt-get", "-qq", *options, "download", *_LIBRARIES], check=True, cwd=apt / "packages")
    unpacked = cache / "debian13.partial"
    for package in sorted((apt / "packages").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, unpacked], check=True)
    unpacked.rename(cache / "debian13")


@dataclass(frozen=True)
class Analysis:
    """What is asked: ``requests`` of the committed inputs at ``concurrency``, over gRPC streams."""

    model: str
    grpc: str  # host:port
    concurrency: int
    requests: int


def run(program: Sequence[str], analysis: Analysis, folder: Path) -> Outcome:
    """Runs it once; the figures are computed from its export of every response's time, as ours are."""
    export = folder / f"profile-{analysis.concurrency}.json"
    options = {
        "-m": analysis.model,
        "-u": analysis.grpc,
        "-i": "grpc",
        "--input-data": str(_INPUTS),
        "--concurrency-range": str(analysis.concurrency),
        "--request-count": str(analysis.requests),
        "--profile-export-file": str(export),
    }
    before = os.times()
    words = [*program, "--streaming", "--async", *(word for pair in options.items() for word in pair)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        said = done.stdout[-2000:] + done.stderr[-2000:]
        raise RuntimeError(f"perf_analyzer ended with status {done.returncode}: {said}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return outcome(json.loads(export.read_text()), cpu_s)


def outcome(export: dict[str, list[dict[str, list[dict[str, object]]]]], client_cpu_s: float) -> Outcome:
    """The figures of one run from perf_analyzer's profile export."""
    requests = [request for experiment in export["experiments"] for request in experiment["requests"]]
    answers: list[tuple[int, list[int]]] = []
    for request in requests:
        arrivals = [int(at) for at in request["response_timestamps"]]  # type: ignore[attr-defined]
        if arrivals and request.get("success", True):
            answers.append((int(str(request["timestamp"])), arrivals))
    gaps = [later - earlier for _, arrivals in answers for earlier, later in pairwise(arrivals)]
    firsts = [arrivals[0] - began for began, arrivals in answers]
    last = max((arrivals[-1] for _, arrivals in answers), default=0)
    return Outcome(
        requests=len(requests),
        failed=len(requests) - len(answers),
        responses=sum(len(arrivals) for _, arrivals in answers),
        duration_s=(last - min((began for began, _ in answers), default=0)) / 1e9,
        client_cpu_s=client_cpu_s,
        ttft_p50_ms=percentile_ms(firsts, 50),
        ttft_p99_ms=percentile_ms(firsts, 99),
        gap_p50_ms=percentile_ms(gaps, 50),
        gap_p99_ms=percentile_ms(gaps, 99),
    )
