"""On vLLM 0.30 a sequence ends with the token that completes its stop string: the contract with vLLM's classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rbln_vllm_backend import vllm_stop_trimming

TEXT = "It throws one melon to the cat. Now the white dog has 4 melons."


@pytest.fixture(scope="module")
def tokenizer(trained: Path) -> Any:
    from vllm.tokenizers import get_tokenizer

    return get_tokenizer(str(trained / "target"))


def step(tokenizer: Any, ids: Sequence[int], reason: Any = None, **sampling: Any) -> tuple[Any, Any]:
    """What a request gets when all of these tokens come in one engine step."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
    from vllm.v1.outputs import LogprobsLists

    assert vllm_stop_trimming.install()
    params = SamplingParams(logprobs=0, max_tokens=100, output_kind=RequestOutputKind.DELTA, **sampling)
    request = EngineCoreRequest(
        request_id="r",
        external_req_id="r",
        prompt_token_ids=tokenizer.encode("Once"),
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    processor = OutputProcessor(tokenizer, log_stats=False)
    collector = RequestOutputCollector(params.output_kind, "r")
    processor.add_request(request, "Once", queue=collector)
    rows = np.array(ids)[:, None]
    logprobs = LogprobsLists(rows, -np.arange(1.0, len(ids) + 1)[:, None], np.ones(len(ids), dtype=int))
    core = EngineCoreOutput("r", list(ids), finish_reason=reason, new_logprobs=logprobs)
    processed = processor.process_outputs([core])
    return collector.get_nowait().outputs[0], processed.reqs_to_abort


def completing(tokenizer: Any, ids: Sequence[int], stop: str) -> int:
    """How many tokens it takes until the stop string is there, by decoding ever more of them."""
    return next(count for count in range(1, len(ids) + 1) if stop in tokenizer.decode(ids[:count]))


@pytest.mark.parametrize("stop", ["melon", "n t", "cat. N", "4 mel"])
def test_ids_logprobs_and_their_sum_end_with_the_token_that_completes_the_stop(tokenizer: Any, stop: str) -> None:
    ids = tokenizer.encode(TEXT)
    kept = completing(tokenizer, ids, stop)
    assert 1 < kept < len(ids)
    output, aborted = step(tokenizer, ids, stop=[stop])
    assert (output.finish_reason, output.stop_reason) == ("stop", stop)
    assert output.text == TEXT[: TEXT.index(stop)]
    assert list(output.token_ids) == ids[:kept]
    assert [next(iter(position)) for position in output.logprobs] == ids[:kept]
    assert output.cumulative_logprob == -sum(range(1, kept + 1))
    assert aborted == ["r"]


def test_a_step_without_the_stop_string_is_taken_whole(tokenizer: Any) -> None:
    ids = tokenizer.encode(TEXT)
    output, _ = step(tokenizer, ids, stop=["elephant"])
    assert list(output.token_ids) == ids
    assert len(output.logprobs) == len(ids)


def test_an_end_token_in_the_same_step_comes_after_the_stop_string(tokenizer: Any) -> None:
    from vllm.v1.engine import FinishReason

    ids = [*tokenizer.encode(TEXT), 0]
    output, aborted = step(tokenizer, ids, FinishReason.STOP, stop=["melon"])
    assert output.stop_reason == "melon"
    assert list(output.token_ids) == ids[: completing(tokenizer, ids, "melon")]
    assert aborted == []
    output, _ = step(tokenizer, ids, FinishReason.STOP, stop=["elephant"])
    assert (output.text, list(output.token_ids)) == (TEXT, ids)


def test_min_tokens_holds_within_a_step(tokenizer: Any) -> None:
    ids = tokenizer.encode(TEXT)
    first = completing(tokenizer, ids, "melon")
    output, _ = step(tokenizer, ids, stop=["melon"], min_tokens=first)
    assert output.text == TEXT[: TEXT.rindex("melon")]
    assert len(output.token_ids) > first
