"""What must hold in the process before vLLM is loaded."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from multiprocessing import spawn

from rbln_vllm_backend import orphan_guard, rbln_platform, vllm_constraints, vllm_cpu_sampling
from rbln_vllm_backend.rbln_platform import Platform

# vLLM's kinds of plugins that VLLM_PLUGINS names (vllm/plugins/__init__.py of 0.30 and 0.32).
_GROUPS = ("vllm.general_plugins", "vllm.platform_plugins", "vllm.io_processor_plugins", "vllm.stat_logger_plugins")
_PLUGINS = (orphan_guard.PLUGIN_NAME, vllm_cpu_sampling.PLUGIN_NAME, vllm_constraints.PLUGIN_NAME)


def prepare(variables: Mapping[str, str], platform: Platform) -> None:
    """Sets the variables of ``env.…`` parameters, then what Triton's embedded interpreter leaves undone."""
    os.environ.update(variables)
    # The stub never calls setlocale, so files would be read as ASCII, and importing torch fails on the first umlaut.
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    _name_the_interpreter()
    orphan_guard.arm()
    _keep_our_plugins()
    if not platform.is_rbln and "vllm-rbln" not in platform.missing:
        _leave_out_rbln()


def names_of_processes(model_name: str) -> dict[str, str]:
    """Variables that put the model's name into vLLM's log lines and process titles, where the operator set none."""
    names = {
        "VLLM_LOGGING_PREFIX": f"[{model_name}] ".replace("%", "%%"),  # it becomes part of a format
        "VLLM_PROCESS_NAME_PREFIX": f"{model_name}::VLLM",
    }
    return {variable: text for variable, text in names.items() if variable not in os.environ}


def _name_the_interpreter() -> None:
    """An embedded interpreter may have no executable of its own, and multiprocessing starts processes with it."""
    if os.path.basename(sys.executable or "").startswith("python"):
        return
    found = shutil.which(f"python3.{sys.version_info.minor}") or shutil.which("python3")
    if found:
        sys.executable = found
        spawn.set_executable(found)


def _keep_our_plugins() -> None:
    """Who names vLLM's plugins one by one (VLLM_PLUGINS) still gets ours."""
    chosen = os.environ.get("VLLM_PLUGINS")
    if chosen:
        names = dict.fromkeys([*chosen.split(","), *_PLUGINS])
        os.environ["VLLM_PLUGINS"] = ",".join(names)


def _leave_out_rbln() -> None:
    """vLLM takes an installed platform plugin by itself; on a CPU it is to load every plugin but that one."""
    chosen = os.environ.get("VLLM_PLUGINS")
    names = chosen.split(",") if chosen else [entry.name for group in _GROUPS for entry in entry_points(group=group)]
    os.environ["VLLM_PLUGINS"] = ",".join(name for name in names if name not in rbln_platform.PLUGIN_NAMES)
