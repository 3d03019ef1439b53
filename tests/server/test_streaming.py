"""The path of a request through a real tritonserver and a real engine."""

from __future__ import annotations

import pytest

from running_server import RunningServer

from .client import Answer, ask, ask_all, generate

GREEDY = {"temperature": 0.0, "max_tokens": 96, "ignore_eos": True}
# A stream's pieces, and whole characters in particular: the tiny model writes bytes that split them.
PROMPTS = [
    "one two three one two three one two three",
    "def add(left, right): return left + right",
    "한국어 문장도 들어 있습니다. 한국어 문장도",
    "Съешь ещё этих мягких булок. Съешь ещё",
    "🙂🚀🙂🚀🙂🚀",
    '"quotes" and {braces} and "quotes" and {braces}',
    "The quick brown fox jumps over the lazy dog. The quick brown",
    "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4",
]
SPECULATION = ("return_speculation", "return_finish_reason")


@pytest.fixture(scope="module")
def unary(server: RunningServer) -> dict[str, list[str]]:
    """The whole answers of both models to every prompt, over HTTP."""
    return {
        model: [
            generate(server, model, text_input=prompt, exclude_input_in_output=True, **GREEDY)[1]["text_output"]
            for prompt in PROMPTS
        ]
        for model in ("llm", "plain")
    }


@pytest.mark.parametrize("model", ["llm", "plain"])
def test_joined_pieces_equal_the_unary_answer(server: RunningServer, unary: dict[str, list[str]], model: str) -> None:
    answers = [ask(server, prompt, GREEDY, model=model) for prompt in PROMPTS]
    assert [answer.text for answer in answers] == unary[model]
    assert all(len(answer.pieces) > 1 for answer in answers)


@pytest.mark.parametrize("model", ["llm", "plain"])
def test_eight_streams_at_once_get_their_own_texts(
    server: RunningServer, unary: dict[str, list[str]], model: str
) -> None:
    answers = ask_all(server, PROMPTS, GREEDY, model=model, switches=SPECULATION)
    assert [answer.text for answer in answers] == unary[model]
    assert {answer.finals for answer in answers} == {1}
    assert {sum(answer.tokens) for answer in answers} == {96}
    assert {answer.last["finish_reason"][0] for answer in answers} == {b"length"}
    drafted = [answer.last["num_draft_tokens"][0] for answer in answers]
    accepted = [answer.last["num_accepted_tokens"][0] for answer in answers]
    if model == "plain":
        assert set(drafted) == {0}
    else:
        assert sum(drafted) >= sum(accepted) > 0


def test_speculation_does_not_change_the_tokens(unary: dict[str, list[str]]) -> None:
    assert unary["llm"] == unary["plain"]


def test_no_piece_is_empty_before_the_last(server: RunningServer) -> None:
    answers = ask_all(server, PROMPTS, GREEDY)
    assert all(all(answer.pieces[:-1]) for answer in answers)


def test_a_unary_answer_on_a_stream_is_one_response_with_its_prefix(
    server: RunningServer, unary: dict[str, list[str]]
) -> None:
    answer = ask(server, PROMPTS[0], GREEDY, stream=False)
    assert answer.pieces == [PROMPTS[0] + unary["llm"][0]]
    assert (answer.tokens, answer.finals) == ([96], 1)


def test_the_servers_request_id_is_echoed_and_need_not_be_unique(
    server: RunningServer, unary: dict[str, list[str]]
) -> None:
    answers = ask_all(server, PROMPTS, GREEDY, request_id="1")
    assert [answer.text for answer in answers] == unary["llm"]
    assert {frozenset(answer.request_ids) for answer in answers} == {frozenset({"1"})}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "text_input: the prompt is missing; send text_input, messages or input_ids."),
        ({"text_input": "hi", "sampling_parameters": '{"a": }'}, "sampling_parameters = '{\"a\": }': not valid JSON"),
        ({"text_input": "hi", "temprature": 0}, "temprature is not a sampling parameter; did you mean temperature?"),
        ({"text_input": "hi", "max_tokens": 1.5}, "max_tokens = 1.5: must be an integer from 1 to 2147483647."),
        ({"text_input": "word " * 600}, "text_input: "),
        ({"text_input": "hi", "min_p": 0.05}, "min_p"),
    ],
    ids=["no prompt", "broken JSON", "unknown", "type", "too long", "speculation"],
)
def test_bad_input_is_400_and_the_next_request_is_served(
    server: RunningServer, fields: dict[str, object], words: str
) -> None:
    status, body = generate(server, **fields)
    assert status == 400
    assert words in body["error"]
    assert generate(server, text_input="hi", max_tokens=2)[0] == 200


def test_an_error_on_a_stream_ends_it_with_the_message(server: RunningServer) -> None:
    answer: Answer = ask(server, "hi", '{"max_tokens": "three"}')
    assert answer.error is not None
    assert "max_tokens = 'three': must be an integer from 1 to 2147483647." in answer.error
    assert answer.pieces == []


def test_values_may_be_spelled_as_text(server: RunningServer, unary: dict[str, list[str]]) -> None:
    spelled = {"temperature": "0", "max_tokens": "96", "ignore_eos": "true"}
    assert ask(server, PROMPTS[0], spelled).text == unary["llm"][0]


def test_the_log_has_one_line_of_the_load_and_none_of_a_prompt(server: RunningServer) -> None:
    ask(server, "a very secret prompt", GREEDY)
    log = server.log_text()
    assert log.count("speculation ngram, context 512 tokens, at most 32 sequences at once") == 1
    assert "secret" not in log
