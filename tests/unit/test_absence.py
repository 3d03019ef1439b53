"""An engine is put to rest when its model has gone without a word, and never while it may serve again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rbln_vllm_backend.absence import Absence
from rbln_vllm_backend.stub_processes import has_successor

SERVER, OTHER_SERVER = 10, 20


@dataclass
class Case:
    successor: bool = False
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.absence = Absence(
            lambda: self.successor, lambda: self.said.append("rest"), lambda: self.said.append("wake"), patience_s=10
        )

    def note(self, now_s: float, served: bool = False, num_open: int = 0, accepted: int = 1) -> list[str]:
        self.absence.note(served, num_open, accepted, now_s)
        return self.said


def test_an_engine_whose_model_is_not_served_is_put_to_rest_once() -> None:
    case = Case()
    assert [len(case.note(now)) for now in (0, 5, 9, 20, 21, 40)] == [0, 0, 0, 1, 1, 1]
    assert case.said == ["rest"]


def test_an_engine_at_rest_is_woken_when_its_model_is_served_again() -> None:
    case = Case()
    for now in (0, 1, 12):
        case.note(now)
    assert case.note(13, served=True) == ["rest", "wake"]
    assert case.note(14, served=True) == ["rest", "wake"]


@pytest.mark.parametrize("busy", [{"served": True}, {"num_open": 1}])
def test_a_model_that_is_served_or_has_requests_keeps_its_engine(busy: dict[str, int]) -> None:
    case = Case()
    assert [case.note(now, **busy) for now in range(0, 100, 5)][-1] == []  # type: ignore[arg-type]


def test_while_requests_arrive_or_a_successor_is_loaded_the_engine_stays() -> None:
    case = Case()
    assert [case.note(now, accepted=now) for now in range(1, 100, 5)][-1] == []
    case.successor = True
    assert [case.note(now) for now in range(100, 200, 5)][-1] == []
    case.successor = False
    assert case.note(204) == []
    assert case.note(210) == ["rest"]


def process(proc: Path, pid: int, parent: int, started: int, arguments: list[str], state: str = "S") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"".join(argument.encode() + b"\0" for argument in arguments))
    (folder / "stat").write_text(f"{pid} (a (stub) x) {state} {parent} " + "0 " * 17 + f"{started} 0 0")


def stub(instance: str, file: str = "/models/llm/1/model.py") -> list[str]:
    return [
        "/opt/python/triton_python_backend_stub",
        file,
        "region",
        "1048576",
        "9",
        "/opt",
        "336",
        instance,
        "DEFAULT",
    ]


@pytest.mark.parametrize(
    ("parent", "started", "arguments", "state", "succeeds"),
    [
        (SERVER, 200, stub("llm_0"), "S", True),
        (SERVER, 200, stub("llm"), "S", True),
        (SERVER, 200, stub("llm_1"), "S", False),
        (SERVER, 200, stub("other", "/models/other/1/model.py"), "S", False),
        (SERVER, 50, stub("llm_0"), "S", False),
        (SERVER, 200, stub("llm_0"), "Z", False),
        (OTHER_SERVER, 200, stub("llm_0"), "S", False),
        (SERVER, 200, ["python3", "-c", "x", "llm_0", "DEFAULT"], "S", False),
    ],
)
def test_a_successor_is_a_younger_stub_of_the_same_server_and_instance(
    tmp_path: Path, parent: int, started: int, arguments: list[str], state: str, succeeds: bool
) -> None:
    process(tmp_path, 100, SERVER, 100, stub("llm_0"))
    process(tmp_path, 101, parent, started, arguments, state)
    assert has_successor(tmp_path, 100) is succeeds
