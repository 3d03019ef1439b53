"""The parts of a profile: the innermost frame that belongs to one tells it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from comparison import stacks

SENDER = ["Thread._bootstrap (threading.py:1002)", "Lane.deliver_all (rbln_vllm_backend/stream.py:160)"]
SEND = [*SENDER, "ResponseStream.deliver (rbln_vllm_backend/stream.py:118)", "TritonReply.send (triton_io.py:130)"]
TASK = [
    "Service._serve (rbln_vllm_backend/service.py:177)",
    "VllmEngine.generate (rbln_vllm_backend/vllm_engine.py:9)",
]


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        (SENDER, stacks.OUR_STREAM),
        (SEND, stacks.EXCHANGE),
        ([*SEND, "TritonReply._tensors (triton_io.py:150)"], stacks.RESPONSE),
        (TASK, stacks.OUR_STEP),
        ([*TASK, "step (rbln_vllm_backend/vllm_outputs.py:20)"], stacks.OUR_STEP),
        ([*TASK, "AsyncLLM.generate (vllm/v1/engine/async_llm.py:760)"], stacks.VLLM_REQUEST),
        (["AsyncLLM._run_output_handler.<locals>.output_handler (async_llm.py:860)"], stacks.VLLM_OUTPUT),
        (["Thread._bootstrap (threading.py:1002)", "Thread.run (threading.py:982)"], stacks.LOOP),
        ([""], stacks.OTHER),
    ],
)
def test_the_innermost_frame_that_has_a_part_tells_it(frames: list[str], part: str) -> None:
    assert stacks.part_of(frames) == part
