"""What a killed process leaves in /dev/shm is found while it lives, and removed afterwards."""

from __future__ import annotations

import os
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from rbln_vllm_backend import shared_memory


def test_mapped_memory_is_found_and_removed() -> None:
    memory = SharedMemory(create=True, size=4096)
    file = Path("/dev/shm") / memory.name
    try:
        assert file in shared_memory.mapped_by([os.getpid()])
        shared_memory.remove([file])
        assert not file.exists()
        shared_memory.remove([file])
        assert file not in shared_memory.mapped_by([os.getpid()])
    finally:
        memory.close()
        resource_tracker.unregister(f"/{memory.name}", "shared_memory")


def test_a_process_that_has_ended_has_none() -> None:
    assert shared_memory.mapped_by([2**22 + 1]) == frozenset()
