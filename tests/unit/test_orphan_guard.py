"""Killed parents take their children along."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import entry_points

import pytest

from rbln_vllm_backend import environment, orphan_guard

FORKING = """
import os, signal
from rbln_vllm_backend import environment, orphan_guard
orphan_guard.arm()
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild == 0:
        print(os.getppid(), os.getpid(), flush=True)
    signal.pause()
signal.pause()
"""
FOLLOWING = """
import os, subprocess, sys
stub = "import os, signal; from rbln_vllm_backend import orphan_guard; orphan_guard.follow_server(os.getppid()); "
child = subprocess.Popen([sys.executable, "-c", stub + "print(os.getpid(), flush=True); signal.pause()"])
child.wait()
"""
# Children that never load the plugin, as an engine that starts hasn't yet.
STARTING = """
import os, signal, subprocess, sys
from rbln_vllm_backend import orphan_guard
orphan_guard.arm()
orphan_guard.follow_server(os.getppid())
worker = "import os, signal; print(os.getppid(), os.getpid(), flush=True); signal.pause()"
core = (
    "import os, signal, subprocess, sys; os.environ[sys.argv[1]] = str(os.getpid()); "
    "subprocess.Popen([sys.executable, '-c', sys.argv[2]]); signal.pause()"
)
subprocess.Popen([sys.executable, "-c", core, orphan_guard._OWNER, worker])
signal.pause()
"""
TRACKING = """
import os, signal, subprocess, sys
from rbln_vllm_backend import orphan_guard
orphan_guard.arm()
orphan_guard.follow_server(os.getppid())
ends_by_itself = "import os, time; print(os.getpid(), flush=True); time.sleep(3); print('by itself', flush=True)"
subprocess.Popen([sys.executable, "-c", ends_by_itself, "multiprocessing.resource_tracker"])
signal.pause()
"""


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as status:
            return status.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("program", [FORKING, FOLLOWING, STARTING], ids=["forked engine", "stub", "starting engine"])
def test_what_a_killed_process_started_dies_with_it(program: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert pids
    assert all(map(alive, pids))
    parent.kill()
    deadline = time.monotonic() + 5
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0)
    parent.communicate()


def test_a_resource_tracker_may_finish_its_work() -> None:
    stub = subprocess.Popen([sys.executable, "-c", TRACKING], stdout=subprocess.PIPE, text=True)
    assert stub.stdout is not None
    assert alive(int(stub.stdout.readline()))
    stub.kill()
    assert stub.communicate()[0] == "by itself\n"


def test_without_arm_nothing_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(orphan_guard._OWNER, raising=False)
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail("it ended the process"))
    orphan_guard.follow_parent()


def test_a_process_whose_parent_is_already_gone_ends_itself() -> None:
    program = "from rbln_vllm_backend import orphan_guard; orphan_guard.follow_parent(); print('still here')"
    environment = {**os.environ, orphan_guard._OWNER: "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_user_who_chose_plugins_keeps_ours() -> None:
    program = (
        "import os; from rbln_vllm_backend import environment, rbln_platform; "
        "environment.prepare({}, rbln_platform.choose('rbln')); print(os.environ['VLLM_PLUGINS'])"
    )
    environ = {**os.environ, "VLLM_PLUGINS": "rbln"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True)
    assert done.stdout == f"rbln,{','.join(environment._PLUGINS)}\n"
    assert set(environment._PLUGINS) <= {entry.name for entry in entry_points(group="vllm.general_plugins")}
