"""A killed stub is seen by its remains, one taken for dead by who waits for it; one that is being buried is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbln_vllm_backend.lost_stubs import LostStubs

SERVER = 10


def child(proc: Path, state: str = "Z", name: str = "triton_python_b", parent: int = SERVER) -> Path:
    folder = proc / "100"
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"100 ({name}) {state} {parent} 0 0")
    return folder / "stat"


def test_a_stub_that_stays_a_zombie_is_lost(tmp_path: Path) -> None:
    lost = LostStubs(SERVER, tmp_path)
    assert not lost.any(0)
    child(tmp_path)
    assert [lost.any(now) for now in (1, 5, 10, 11)] == [False, False, False, True]


def test_a_stub_that_is_buried_in_time_is_not_lost(tmp_path: Path) -> None:
    lost = LostStubs(SERVER, tmp_path)
    stat = child(tmp_path)
    assert not lost.any(0)
    stat.unlink()
    assert not lost.any(9)
    child(tmp_path)
    assert [lost.any(now) for now in (11, 20, 21)] == [False, False, True]


@pytest.mark.parametrize("other", [{"state": "S"}, {"name": "pt_main_thread"}, {"parent": 11}])
def test_other_processes_are_not_stubs_that_were_lost(tmp_path: Path, other: dict[str, str]) -> None:
    child(tmp_path, **other)  # type: ignore[arg-type]
    lost = LostStubs(SERVER, tmp_path)
    assert [lost.any(now) for now in (0, 100)] == [False, False]


def waiting_thread(proc: Path, call: str) -> None:
    folder = proc / str(SERVER) / "task" / "12"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "syscall").write_text(call)


def test_a_stub_for_whose_end_the_server_waits_for_long_is_lost(tmp_path: Path) -> None:
    waiting_thread(tmp_path, "61 0x64 0x7f00 0x0 0x0 0x0 0x0 0x7ffc 0x7f11\n")
    lost = LostStubs(SERVER, tmp_path)
    assert [lost.any(now) for now in (0, 29, 30)] == [False, False, True]


@pytest.mark.parametrize("call", ["202 0x5570 0x189 0x0\n", "running\n"])
def test_other_calls_are_no_waiting(tmp_path: Path, call: str) -> None:
    waiting_thread(tmp_path, call)
    lost = LostStubs(SERVER, tmp_path)
    assert [lost.any(now) for now in (0, 100)] == [False, False]
