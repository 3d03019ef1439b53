"""The processes of a running server: its stub, the engine's core, the core's worker."""

from __future__ import annotations

import psutil

from running_server import RunningServer


def stub_of(server: RunningServer, model: str = "") -> psutil.Process:
    """Triton's process for the one model, or for the one of that name."""
    stubs = (child for child in psutil.Process(server.process.pid).children() if "stub" in child.name())
    (stub,) = (stub for stub in stubs if f"/{model}" in " ".join(stub.cmdline()))
    return stub


def engine_processes(server: RunningServer) -> list[psutil.Process]:
    """Everything below tritonserver but the stubs themselves."""
    root = psutil.Process(server.process.pid)
    return [child for child in root.children(recursive=True) if "triton_python_backend_stub" not in child.name()]


def core_of(server: RunningServer, model: str = "") -> psutil.Process:
    """The process of vLLM's engine core."""
    (core,) = (child for child in stub_of(server, model).children() if "EngineCore" in " ".join(child.cmdline()))
    return core


def worker_of(server: RunningServer) -> psutil.Process:
    """The process that runs the model for the engine core."""
    (worker,) = (child for child in core_of(server).children() if "Worker" in " ".join(child.cmdline()))
    return worker


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs."""
    return all(not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in processes)
