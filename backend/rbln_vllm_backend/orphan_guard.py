"""Nothing outlives a killed server: the stub follows tritonserver, and engine processes follow the stub.

An engine that outlives its server would hold its device and its memory; vLLM itself has no watch on its parent. ``arm``
is called once in Triton's stub. A forked engine process follows its parent by a hook of the fork, a spawned one by
vLLM's plugin mechanism: ``follow_parent`` is this package's entry point in ``vllm.general_plugins``, which every vLLM
process calls as it starts. Without ``arm`` it does nothing, so a `vllm serve` in the same environment is left alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PLUGIN_NAME = "rbln_vllm_backend_orphan_guard"
_OWNER = "RBLN_VLLM_BACKEND_OWNER_PID"
_PR_SET_PDEATHSIG = 1  # prctl(2)


def arm() -> None:
    """From now on, what vLLM starts from this process follows it."""
    os.environ[_OWNER] = str(os.getpid())
    os.register_at_fork(after_in_child=follow_parent)


def is_armed() -> bool:
    """Whether this process belongs to a stub of this backend."""
    return _OWNER in os.environ


def follow_parent() -> None:
    """Asks the kernel to kill this process when the thread that started it ends."""
    owner = os.environ.get(_OWNER)
    if owner is None or owner == str(os.getpid()):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if str(os.getppid()) != owner:
        os._exit(1)  # the parent ended before the kernel was asked
    os.environ[_OWNER] = str(os.getpid())  # and what we start follows us


def follow_server(server_pid: int) -> None:
    """Starts a small process that kills this one (the stub) once its parent, tritonserver, is gone.

    When the stub has gone it also ends what still belongs to it: a spawned engine process loads its plugins only after
    seconds, and waits minutes for a parent that died meanwhile.

    The kernel's signal can't be used here: it comes when the *thread* that started the stub ends, and the server's
    loading threads come and go. Nor can a thread: an exchange with a server that has gone may keep the interpreter's
    lock for ever. The process ends by itself when the stub does.
    """
    program = str(Path(__file__).with_name("orphan_follower.py"))
    command = [sys.executable, "-I", "-S", program, str(os.getpid()), str(server_pid), _OWNER]
    subprocess.Popen(command, stdin=subprocess.DEVNULL)
