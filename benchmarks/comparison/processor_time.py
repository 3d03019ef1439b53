"""Which process of a contestant used how much of the processors, by its part in the work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

PARTS = ("frontend", "tritonserver", "facade", "engine", "other")


@dataclass(frozen=True)
class Use:
    """Processor time in seconds so far, and resident memory in MB, by part."""

    cpu_s: Mapping[str, float]
    rss_mb: Mapping[str, float]

    def since(self, before: Use) -> dict[str, float]:
        """Seconds used between the two, by part."""
        return {part: used - before.cpu_s.get(part, 0.0) for part, used in self.cpu_s.items()}


def use_of(root: psutil.Process, model: str = "") -> Use:
    """The use of a process and all that it started; the frontend is the process that holds the AsyncLLM."""
    cpu: dict[str, float] = {}
    rss: dict[str, float] = {}
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            part = _part(process, root, model)
            times = process.cpu_times()
            cpu[part] = cpu.get(part, 0.0) + times.user + times.system
            rss[part] = rss.get(part, 0.0) + process.memory_info().rss / 1e6
    return Use(cpu, rss)


def _part(process: psutil.Process, root: psutil.Process, model: str) -> str:
    command = " ".join(process.cmdline())
    name = process.name()
    if "EngineCor" in name or "EngineCore" in command or "VLLM::Worker" in command:
        return "engine"
    if "python_backend_stub" in command:
        return "frontend" if f"/{model}/" in command else "facade"
    if "tritonserver" in name:
        return "tritonserver"
    return "frontend" if process == root else "other"


def total_s(processes: Iterable[psutil.Process]) -> float:
    """Seconds used by all of them and what they started."""
    return sum(sum(use_of(process).cpu_s.values()) for process in processes)
