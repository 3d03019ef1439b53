"""What must hold in the process before vLLM is loaded."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from collections.abc import Mapping
from multiprocessing import spawn

from rbln_vllm_backend import orphan_guard, vllm_cpu_sampling

_PLUGINS = (orphan_guard.PLUGIN_NAME, vllm_cpu_sampling.PLUGIN_NAME)


def prepare(variables: Mapping[str, str]) -> None:
    """Sets the variables of ``env.…`` parameters, then what Triton's embedded interpreter leaves undone."""
    os.environ.update(variables)
    # The stub never calls setlocale, so files would be read as ASCII, and importing torch fails on the first umlaut.
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    _name_the_interpreter()
    orphan_guard.arm()
    _keep_our_plugins()


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
