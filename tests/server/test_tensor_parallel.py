"""A tensor-parallel engine, by vLLM's own executor: two workers behind one engine, through Triton (a smoke test)."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from model_repository import NGRAM, small_engine, write_model
from running_server import running

from .client import ask

SAMPLING = {"temperature": 0.0, "max_tokens": 32, "ignore_eos": True}


@pytest.mark.timeout(600)
def test_two_workers_answer_as_one_and_leave_nothing_behind(checkpoint: Path, tmp_path: Path) -> None:
    parameters = small_engine(
        checkpoint, tensor_parallel_size="2", **{"env.VLLM_CPU_OMP_THREADS_BIND": "nobind"}, **NGRAM
    )
    write_model(tmp_path / "models", "llm", parameters)
    with running(tmp_path / "models", tmp_path / "tritonserver.log") as server:
        children = psutil.Process(server.process.pid).children(recursive=True)
        workers = [child for child in children if "VLLM::Worker" in " ".join(child.cmdline())]
        assert len(workers) == 2
        answer = ask(server, "one two three one two three one two", SAMPLING, switches=["return_speculation"])
        assert (sum(answer.tokens), answer.finals, answer.error) == (32, 1, None)
        assert answer.last["num_accepted_tokens"][0] > 0
    psutil.wait_procs(workers, timeout=20)
    assert not [worker for worker in workers if worker.is_running()]
