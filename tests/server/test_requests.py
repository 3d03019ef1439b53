"""What clients of this kind of server have sent, through a real tritonserver: the right value, neighbours unhurt."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient import grpc

from running_server import RunningServer

from .client import asked, exchange, generate, post, tensor

PROMPT = "one two three one two three one two three"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 32, "ignore_eos": True}


@pytest.fixture(scope="module")
def text(server: RunningServer) -> str:
    """The right answer to PROMPT."""
    answer = unary(server, **GREEDY)
    assert len(answer) > 16
    return answer


def unary(server: RunningServer, model: str = "llm", **fields: Any) -> str:
    status, body = generate(server, model, **{"text_input": PROMPT, "exclude_input_in_output": True, **fields})
    assert status == 200, body
    return str(body["text_output"])


def joined(responses: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(
        piece.decode()
        for one in responses
        for number, piece in enumerate(one["text_output"])
        if one.get("sequence_index", [0] * len(one["text_output"]))[number] == index
    )


def refusal(server: RunningServer, **fields: Any) -> str:
    """The message of a generate that must fail with 400, after which the next request is served."""
    status, body = generate(server, **{"text_input": PROMPT, **fields})
    assert status == 400, body
    assert generate(server, text_input="hi", max_tokens=2)[0] == 200
    return str(body["error"])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"max_tokens": 1.5}', "max_tokens = 1.5: must be an integer from 1 to 2147483647."),
        ('{"max_tokens": true}', "max_tokens = True: must be an integer from 1 to 2147483647."),
        ('{"seed": 1.5}', "seed = 1.5: must be an integer from "),
        ('{"min_tokens": 1.5}', "min_tokens = 1.5: must be an integer from 0 to 2147483647."),
        ('{"logprobs": 2.5}', "logprobs = 2.5: must be an integer from 0 to 2147483647."),
        ('{"top_k": true}', "top_k = True: must be an integer from -1 to 2147483647."),
        ('{"ignore_eos": "maybe"}', "ignore_eos = 'maybe': must be true or false."),
        ('{"skip_special_tokens": 1}', "skip_special_tokens = 1: must be true or false."),
        ('{"seed": 1180591620717411303424}', "seed = 1180591620717411303424"),
        ('{"stop": "\\ud800"}', "sampling_parameters = "),
        ('{"temperature": NaN}', "sampling_parameters = "),
        ('{"top_p": NaN}', "sampling_parameters = "),
        ('{"temperature": Infinity}', "sampling_parameters = "),
        ('{"temprature": 0.5}', "temprature is not a sampling parameter; did you mean temperature?"),
        ('{"max_new_tokens": 5}', "max_new_tokens is not a sampling parameter; did you mean max_tokens"),
        ('{"guided_decoding": {}}', "guided_decoding is not a sampling parameter; known ones are "),
        ('{"use_beam_search": true}', "use_beam_search is not a sampling parameter; known ones are "),
        ('{"stop": ""}', "stop = '': must be a text that is not empty, or a list of at most 64 such texts."),
        (
            '{"stop": ["a", 5]}',
            "stop = ['a', 5]: must be a text that is not empty, or a list of at most 64 such texts.",
        ),
        ('{"min_p": 0.05}', "min_p = 0.05: not with speculative decoding, and this model speculates (ngram)."),
        ('{"logit_bias": {"5": 1}}', "logit_bias = {5: 1.0}: not with speculative decoding, and this model speculates"),
        ("[]", "sampling_parameters = '[]': must be a JSON object."),
        ("5", "sampling_parameters = '5': must be a JSON object."),
        ("null", "sampling_parameters = 'null': must be a JSON object."),
        ('"x"', "sampling_parameters = '\"x\"': must be a JSON object."),
        ('{"n": 0}', "n = 0: must be an integer from 1 to 16384."),
        ('{"n": -1}', "n = -1: must be an integer from 1 to 16384."),
        ('{"n": 20000}', "n = 20000: must be an integer from 1 to 16384."),
        ('{"n": 17}', "n = 17: serving.max_n allows 16 at most."),
        ('{"logprobs": 21}', "logprobs"),
        ('{"logprobs": -1}', "logprobs = -1: must be an integer from 0 to 2147483647."),
        ('{"structured_outputs": {"json_object": false}}', "json_object must be true."),
        ('{"structured_outputs": {"json": ""}}', "json must be a JSON schema of at most 65536 characters."),
        ('{"structured_outputs": {"json": {"maxItems": 10001}}}', "json asks for too much; numbers of items"),
        ('{"structured_outputs": {}}', "must be an object with one of json, regex, choice, grammar, json_object"),
        ('{"structured_outputs": {"regex": "((("}}', "structured_outputs"),
        ('{"prompt_logprobs": 1}', "prompt_logprobs is not a sampling parameter; the protocol has no output for"),
    ],
)
def test_bad_parameters_are_refused_by_name_and_the_next_request_is_served(
    server: RunningServer, document: str, words: str
) -> None:
    """R1 to R4, R8, R9, R13, R16, R17, T8."""
    assert words in refusal(server, sampling_parameters=document)


def test_a_broken_request_leaves_the_others_of_its_call_alone(server: RunningServer, text: str) -> None:
    """R16: both on one stream."""
    bad, good = [tensor("text_input", "hi")] * 1, tensor("text_input", PROMPT)
    import queue

    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer("llm", [*bad, tensor("sampling_parameters", "{")])
        client.async_stream_infer(
            "llm", [good, tensor("sampling_parameters", json.dumps(GREEDY)), tensor("exclude_input_in_output", True)]
        )
        answers = [arrived.get(timeout=60) for _ in range(2)]
    assert sum(error is not None for _, error in answers) == 1
    (result,) = (result for result, error in answers if error is None)
    assert result.as_numpy("text_output")[0].decode() == text


def test_without_max_tokens_the_text_goes_to_the_end_of_the_context(server: RunningServer) -> None:
    """R5."""
    responses, _ = asked(
        server,
        text_input=PROMPT,
        sampling_parameters={"temperature": 0, "ignore_eos": True},
        stream=True,
        return_finish_reason=True,
        return_totals=True,
    )
    last = responses[-1]
    assert last["finish_reason"] == [b"length"]
    assert last["total_input_tokens"][0] + last["total_output_tokens"][0] == 512


@pytest.mark.parametrize("temperature", [0, 0.0, "0", "0.0"])
@pytest.mark.parametrize("ignore_eos", [True, "true", "True"])
def test_every_spelling_of_a_parameter_works(
    server: RunningServer, text: str, temperature: object, ignore_eos: object
) -> None:
    """R6: on generate, and over gRPC, whose client takes integers, texts and booleans."""
    spelled = {"temperature": temperature, "ignore_eos": ignore_eos, "max_tokens": "32"}
    assert unary(server, **spelled) == text
    over_grpc = {**spelled, "temperature": str(temperature)}
    tensors = [tensor("text_input", PROMPT), tensor("exclude_input_in_output", True)]
    responses, error = exchange(server, tensors, parameters=over_grpc)
    assert error is None
    assert joined(responses) == text


def test_false_is_false(server: RunningServer) -> None:
    assert unary(server, **{**GREEDY, "skip_special_tokens": "false"}) == unary(
        server, **{**GREEDY, "skip_special_tokens": False}
    )


def test_lists_go_into_the_json_and_tritons_own_refusal_says_so_elsewhere(server: RunningServer, text: str) -> None:
    """R7."""
    assert generate(server, text_input=PROMPT, parameters={"stop": ["\n"]})[0] == 400
    assert generate(server, text_input=PROMPT, stop=["\n"])[0] == 400
    assert generate(server, input_ids=[5, 6], max_tokens=1)[0] == 200
    stop = text[10:13]
    assert unary(server, **GREEDY, sampling_parameters=json.dumps({"stop": [stop]})) == text.partition(stop)[0]


def test_the_earliest_stop_cuts(server: RunningServer, text: str) -> None:
    """R8."""
    early, late = text[8:11], text[20:24]
    for stop in (early, [early], [late, early, "never there"]):
        document = json.dumps({"stop": stop})
        assert unary(server, **GREEDY, sampling_parameters=document) == text.partition(early)[0]


@pytest.mark.parametrize("stream", [True, False])
def test_several_sequences_carry_their_index_and_end_after_the_last(server: RunningServer, stream: bool) -> None:
    """R17."""
    responses, error = asked(
        server,
        text_input=PROMPT,
        stream=stream,
        sampling_parameters={"n": 3, "temperature": 0.9, "seed": 1, "max_tokens": 12, "ignore_eos": True},
        return_finish_reason=True,
        return_num_output_tokens=True,
        return_totals=True,
    )
    assert error is None
    assert len(responses) > 1 if stream else len(responses) == 1
    texts = [joined(responses, index) for index in range(3)]
    assert len(set(texts)) == 3
    counts = [0, 0, 0]
    for one in responses:
        for index, count in zip(one["sequence_index"], one["num_output_tokens"], strict=True):
            counts[index] += count
    assert counts == [12, 12, 12]
    assert responses[-1]["total_output_tokens"] == [36]
    if not stream:
        assert responses[0]["sequence_index"] == [0, 1, 2]
        assert all(text.startswith(PROMPT) for text in texts)
    assert sum(reason == b"length" for one in responses for reason in one.get("finish_reason", [])) == 3


def test_an_adapter_that_nobody_configured_is_not_found(server: RunningServer) -> None:
    assert refusal(server, lora_name="x") == (
        "lora_name = 'x': no such adapter; this model has none (serving.lora.NAME in config.pbtxt)."
    )


@pytest.mark.parametrize("prompt", ["", " ", "\u0000"])
def test_a_strange_prompt_is_answered_or_refused(server: RunningServer, prompt: str) -> None:
    """R10."""
    status, body = generate(server, text_input=prompt, max_tokens=2)
    assert (status, "text_output" in body) == (200, True) if prompt else (400, False)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([tensor("text_input", [])], "text_input"),
        ([tensor("text_input", ["a", "b"])], "text_input"),
        ([], "text_input: the prompt is missing; send text_input, messages or input_ids."),
        ([tensor("text_input", b"\xff\xfe")], "text_input = b'\\xff\\xfe': must be UTF-8"),
        ([tensor("text_input", b"\xed\xa0\x80")], "text_input = b'\\xed\\xa0\\x80': must be UTF-8"),
        (
            [tensor("text_input", "hi"), tensor("sampling_parameters", b"\xff\xfe")],
            "sampling_parameters = b'\\xff\\xfe': must be UTF-8",
        ),
        ([tensor("text_input", "a"), tensor("input_ids", [1])], "input_ids: the prompt is given twice"),
        ([tensor("input_ids", [512])], "input_ids = 512: token ids go from 0 to 511."),
        ([tensor("messages", "[")], "messages = '[': not valid JSON"),
        ([tensor("text_input", "hi"), tensor("priority", 1)], "priority = 1: this engine serves in order of arrival"),
        ([tensor("text_input", "hi"), tensor("timeout_s", -1.0)], "timeout_s = -1.0: must be a number above 0"),
        ([tensor("text_input", "hi"), tensor("image", "x y")], "image[0] = b'x y': must be base64"),
        ([tensor("text_input", "hi"), tensor("image", "R0lGODlh")], "image: this checkpoint takes text only."),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_bad_tensors_are_refused_by_name(server: RunningServer, text: str, tensors: list[Any], words: str) -> None:
    """R2, R10, R15."""
    responses, error = exchange(server, tensors)
    assert responses == []
    assert error is not None
    assert words in error
    assert unary(server, **GREEDY) == text


@pytest.mark.parametrize("raw", [b"\x05", b"no length before it", b"\xff\xff\xff\x7fhi", b"\x02\x00\x00\x00hi more"])
@pytest.mark.parametrize("name", ["text_input", "sampling_parameters"])
def test_bytes_that_are_no_tensor_are_refused(server: RunningServer, text: str, name: str, raw: bytes) -> None:
    """R15: a length that is missing, beyond the buffer, or short of it."""
    broken = tensor(name, "x")
    broken._raw_content = raw
    responses, error = exchange(server, [broken] if name == "text_input" else [tensor("text_input", "hi"), broken])
    assert responses == []
    assert error
    assert unary(server, **GREEDY) == text


def test_a_stream_flag_as_text_is_refused(server: RunningServer) -> None:
    """R10: Triton itself knows the input's type."""
    assert generate(server, text_input="hi", stream="yes")[0] == 500
    wrong = grpc.InferInput("stream", [1], "BYTES")
    wrong.set_data_from_numpy(np.array([b"true"], dtype=np.object_))
    assert "stream" in (exchange(server, [tensor("text_input", "hi"), wrong])[1] or "")


def test_a_chat_is_the_text_that_the_template_makes(server: RunningServer) -> None:
    messages = json.dumps([{"role": "user", "content": PROMPT}])
    responses, error = asked(server, messages=messages, sampling_parameters=GREEDY, stream=True)
    assert error is None
    assert joined(responses) == unary(server, **{**GREEDY, "text_input": f"<|user|>{PROMPT}<|end|><|assistant|>"})
    status, body = generate(server, messages=messages, **GREEDY)
    assert (status, body["text_output"]) == (200, joined(responses))


def test_token_ids_go_in_and_come_out(server: RunningServer, text: str, checkpoint: Path) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    ids = tokenizer.encode(PROMPT).ids
    for stream in (True, False):
        responses, error = asked(
            server,
            input_ids=ids,
            sampling_parameters=GREEDY,
            stream=stream,
            return_token_ids=True,
            return_stop_reason=True,
            return_cached_tokens=True,
        )
        assert error is None
        assert joined(responses) == text
        told = [token for one in responses for token in one["token_ids"]]
        assert len(told) == 32
        assert tokenizer.decode(ids + told) == PROMPT + text
        assert responses[-1]["stop_reason"] == [b"null"]
        assert "num_cached_tokens" in responses[-1]
    assert refusal(server, n=2, temperature=1.0, return_token_ids=True) == (
        "return_token_ids: token ids are sent for one sequence only, and n is above 1."
    )


def test_a_prompt_that_ends_inside_a_character_is_not_repeated(server: RunningServer, checkpoint: Path) -> None:
    ids = Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode("The quick brown fox 🦜").ids[:-1]
    responses, error = asked(server, input_ids=ids, sampling_parameters=GREEDY, stream=True)
    assert error is None
    assert "quick brown" not in joined(responses)


def over(began: float, message: str | None, timeout_s: float) -> None:
    assert message is not None
    assert f"The request's {timeout_s:g} s are over, after " in message
    assert message.endswith(" new tokens.")
    assert time.monotonic() - began < 20


LONG = {"temperature": 0.0, "max_tokens": 450, "ignore_eos": True}


@pytest.mark.parametrize("stream", [True, False])
def test_a_deadline_ends_the_request_with_the_tokens_so_far(server: RunningServer, stream: bool) -> None:
    began = time.monotonic()
    _, error = asked(server, "plain", text_input=PROMPT, sampling_parameters=LONG, stream=stream, timeout_s=0.05)
    over(began, error, 0.05)


def test_tritons_own_timeout_is_a_deadline(server: RunningServer) -> None:
    began = time.monotonic()
    tensors = [tensor("text_input", PROMPT), tensor("sampling_parameters", json.dumps(LONG)), tensor("stream", True)]
    over(began, exchange(server, tensors, "plain", timeout=50_000)[1], 0.05)


def test_the_parameter_timeout_of_generate_is_a_deadline(server: RunningServer) -> None:
    began = time.monotonic()
    status, body = generate(server, "plain", text_input=PROMPT, timeout=50_000, **LONG)
    assert status == 400
    over(began, body["error"], 0.05)


def test_a_deadline_that_is_met_changes_nothing(server: RunningServer, text: str) -> None:
    assert unary(server, **GREEDY, timeout_s=100.0) == text


def test_context_lengths(server: RunningServer) -> None:
    """R11."""
    one_token = {"ignore_eos": True}
    responses, _ = asked(
        server, input_ids=[5] * 511, sampling_parameters=one_token, return_finish_reason=True, return_totals=True
    )
    assert (responses[0]["finish_reason"], responses[0]["total_output_tokens"]) == ([b"length"], [1])
    for count in (512, 513):
        _, error = asked(server, input_ids=[5] * count)
        assert error is not None
        assert f"{count} tokens" in error
        assert "512" in error
    assert "text_input: " in refusal(server, text_input="x" * 1_000_000)
    # Not over HTTP: Triton 24.10 dies of a body of 8 MB, whatever the model.
    _, error = asked(server, text_input="x" * 17_000_000)
    assert error is not None
    assert "have 17000000 bytes; serving.max_request_bytes allows 16777216." in error


@pytest.mark.parametrize("stream", [None, False, True])
def test_generate_gives_exactly_one_response_unless_a_stream_is_asked(
    server: RunningServer, stream: bool | None
) -> None:
    """T5: for a stream Triton's own message, whose status is 400 or, when it has begun to answer, 200."""
    more = {} if stream is None else {"stream": stream}
    status, body = generate(server, "plain", text_input=PROMPT, **{**GREEDY, "max_tokens": 400}, **more)
    if stream:
        assert status in (200, 400)
        assert "use generate stream" in body["error"]
    else:
        assert (status, body["text_output"][: len(PROMPT)]) == (200, PROMPT)


def test_a_plain_infer_gets_tritons_own_refusal(server: RunningServer) -> None:
    """T6."""
    inputs = [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["hi"]}]
    status, body = post(server, "models/llm/infer", {"inputs": inputs})
    assert status == 501
    assert "decoupled" in body["error"]


@pytest.mark.parametrize("stream", [True, False])
def test_structured_output_with_speculation_in_every_form(server: RunningServer, stream: bool) -> None:
    constraint = {"regex": "[ab]{3}c"}
    for spelled in (constraint, json.dumps(constraint)):
        sampling = {"temperature": 0, "max_tokens": 32, "structured_outputs": spelled}
        responses, error = asked(
            server, text_input=PROMPT, sampling_parameters=sampling, stream=stream, exclude_input_in_output=True
        )
        assert error is None
        assert len(joined(responses)) == 4
        assert joined(responses).endswith("c")


def test_what_nvidias_own_client_sends(server: RunningServer) -> None:
    """Values as texts, the same in tensor and parameters, every output of that backend asked for."""
    sampling = {"temperature": "0.1", "top_p": "0.95", "max_tokens": "24"}
    returned = ["finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens"]
    for stream in (False, True):
        for more in ({}, {"logprobs": "2"}):
            document = {**sampling, **more}
            tensors = [
                tensor("text_input", PROMPT),
                tensor("stream", stream),
                tensor("sampling_parameters", json.dumps(document)),
                tensor("exclude_input_in_output", True),
                *(tensor(f"return_{name}", True) for name in returned),
            ]
            outputs = [grpc.InferRequestedOutput(name) for name in ("text_output", *returned)]
            responses, error = exchange(server, tensors, parameters=document, outputs=outputs, request_id="7")
            assert error is None
            expected = {"text_output", "num_input_tokens", "num_output_tokens"}
            expected |= {"logprobs", "cumulative_logprob"} if more else set()
            assert all(one.keys() >= expected for one in responses)
            assert responses[-1]["finish_reason"][0] in (b"length", b"stop")
            tokens = sum(one["num_output_tokens"][0] for one in responses)
            assert 0 < tokens <= 24
            if more:
                assert sum(len(json.loads(one["logprobs"][0])) for one in responses) == tokens
            assert not joined(responses).startswith(PROMPT)
