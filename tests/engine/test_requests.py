"""What a client may ask of the real engine beyond a text prompt, and what must not hurt it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_repository import NGRAM, small_engine
from rbln_vllm_backend.engine import Chat, Step, TokenIds
from rbln_vllm_backend.errors import InvalidRequest

from .conftest import EngineOnALoop, started

PROMPT = "one two three one two three one two three"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 48, "ignore_eos": True}


@pytest.fixture(params=["ngram_engine", "plain_engine"])
def engine(request: pytest.FixtureRequest) -> EngineOnALoop:
    engine: EngineOnALoop = request.getfixturevalue(request.param)
    return engine


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(checkpoint)


def text(steps: list[Step], index: int = 0) -> str:
    return "".join(piece.text for step in steps for piece in step.pieces if piece.index == index)


def token_ids(steps: list[Step]) -> list[int]:
    return [token for step in steps for piece in step.pieces for token in piece.token_ids]


def refusal(engine: EngineOnALoop, prompt: Any, **sampling: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        engine.ask(prompt, **sampling)
    assert len(token_ids(engine.ask(PROMPT, temperature=0.0, max_tokens=2, ignore_eos=True))) == 2
    return str(caught.value)


def refused(engine: EngineOnALoop, prompt: Any, **sampling: Any) -> str | None:
    """The refusal, None if the engine answers."""
    try:
        engine.ask(prompt, **sampling)
    except InvalidRequest as error:
        return str(error)
    return None


def test_messages_are_the_text_that_the_checkpoints_template_makes_of_them(engine: EngineOnALoop) -> None:
    chat = Chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}])
    written = f"<|system|>Be brief.<|end|><|user|>{PROMPT}<|end|><|assistant|>"
    assert text(engine.ask(chat, **GREEDY)) == text(engine.ask(written, **GREEDY))


def test_parts_of_text_are_joined(plain_engine: EngineOnALoop) -> None:
    whole = Chat([{"role": "user", "content": PROMPT}])
    parts = Chat([{"role": "user", "content": [{"type": "text", "text": PROMPT}]}])
    assert text(plain_engine.ask(whole, **GREEDY)) == text(plain_engine.ask(parts, **GREEDY))


def test_token_ids_are_the_prompt_that_they_spell(engine: EngineOnALoop, tokenizer: Any) -> None:
    assert text(engine.ask(TokenIds(tokenizer.encode(PROMPT)), **GREEDY)) == text(engine.ask(PROMPT, **GREEDY))


@pytest.mark.parametrize(("ids", "wrong"), [([1, -1], -1), ([512, 3], 512), ([2**62], 2**62)])
def test_a_token_id_beyond_the_vocabulary_is_refused(plain_engine: EngineOnALoop, ids: list[int], wrong: int) -> None:
    assert refusal(plain_engine, TokenIds(ids)) == f"input_ids = {wrong}: token ids go from 0 to 511."


def test_a_prompt_that_fills_the_context_says_both_lengths(plain_engine: EngineOnALoop) -> None:
    assert len(token_ids(plain_engine.ask(TokenIds([5] * 511), **GREEDY))) == 1
    for count in (512, 513):
        assert refusal(plain_engine, TokenIds([5] * count)) == (
            f"input_ids: the prompt has {count} tokens, and the context (max_model_len) has room for 512, at least one "
            "of them new."
        )


@pytest.mark.parametrize(
    "chat",
    [
        Chat([{"role": "user", "content": "x" * 1_000_000}]),
        Chat([{"role": "x" * 1_000_000, "content": "x"}]),
        Chat([{"role": "user", "content": ""}] * 300_000),
        Chat([{"role": "user", "content": "x", "tool_calls": [{"function": {"arguments": "x" * 1_000_000}}]}]),
        Chat([{"role": "user", "content": "x"}], {"tools": [{"x" * 1_000_000: []}]}),
        Chat([{"role": "user", "content": "x"}], {"documents": [[]] * 1_000_000}),
    ],
    ids=["content", "role", "messages", "tool calls", "tools", "documents"],
)
def test_messages_that_no_context_can_hold_are_refused_before_they_are_rendered(
    plain_engine: EngineOnALoop, chat: Chat
) -> None:
    assert refusal(plain_engine, chat) == (
        "messages: they have more characters than the context (max_model_len) of 512 tokens can hold."
    )


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "x", "tool_calls": 5}],
        [{"role": "assistant", "tool_calls": [{"function": {"arguments": 5}}]}],
        [{"role": "tool", "content": None, "tool_call_id": {}}],
        [{"role": "user", "content": None}],
        [{"role": "nobody", "content": []}],
    ],
)
def test_odd_messages_are_answered_or_refused_by_name(
    plain_engine: EngineOnALoop, messages: list[dict[str, Any]]
) -> None:
    assert (refused(plain_engine, Chat(messages), max_tokens=1) or "messages: ").startswith("messages: ")
    assert len(token_ids(plain_engine.ask(PROMPT, max_tokens=2, ignore_eos=True))) == 2


def test_the_pieces_carry_their_tokens_and_the_end_its_reason(engine: EngineOnALoop, tokenizer: Any) -> None:
    steps = engine.ask(PROMPT, **GREEDY)
    ids = token_ids(steps)
    assert len(ids) == 48
    assert [len(piece.token_ids) for step in steps for piece in step.pieces] == [
        piece.num_tokens for step in steps for piece in step.pieces
    ]
    assert token_ids(engine.ask(PROMPT, stream=False, **GREEDY)) == ids
    assert steps[-1].pieces[0].stop_reason is None
    stopped = engine.ask(PROMPT, **{**GREEDY, "stop_token_ids": [ids[20]]})
    assert stopped[-1].pieces[0].stop_reason == ids[20]
    assert stopped[-1].pieces[0].finish_reason == "stop"


def test_a_prompt_that_came_before_is_in_the_prefix_cache(plain_engine: EngineOnALoop) -> None:
    prompt = TokenIds([7, 9] * 200)
    plain_engine.ask(prompt, max_tokens=1)
    cached = plain_engine.ask(prompt, max_tokens=1)[-1].num_cached_tokens
    assert cached is not None
    assert 0 < cached < 400


def test_a_stop_string_cuts_counts_ids_and_logprobs_alike(engine: EngineOnALoop) -> None:
    """T3: with speculation a step may hold tokens behind the one that completed the stop."""
    whole = text(engine.ask(PROMPT, **GREEDY))
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    steps = engine.ask(PROMPT, **GREEDY, stop=[stop], logprobs=2)
    assert text(steps) == whole.partition(stop)[0]
    last = steps[-1].pieces[0]
    assert (last.finish_reason, last.stop_reason) == ("stop", stop)
    num_tokens = sum(piece.num_tokens for step in steps for piece in step.pieces)
    logprobs = [position for step in steps for piece in step.pieces for position in piece.logprobs or ()]
    assert num_tokens == len(token_ids(steps)) == len(logprobs)
    kept = engine.ask(PROMPT, **GREEDY, stop=[stop], include_stop_str_in_output=True)
    assert text(kept) == whole.partition(stop)[0] + stop


def test_logprobs_hold_the_chosen_token_and_do_not_depend_on_speculation(
    ngram_engine: EngineOnALoop, plain_engine: EngineOnALoop
) -> None:
    """T7."""
    values = []
    for engine in (ngram_engine, plain_engine):
        steps = engine.ask(PROMPT, **GREEDY, logprobs=2)
        positions = [position for step in steps for piece in step.pieces for position in piece.logprobs or ()]
        chosen = token_ids(steps)
        assert len(positions) == len(chosen) == 48
        assert all(token in position for token, position in zip(chosen, positions, strict=True))
        values.append([position[token].logprob for token, position in zip(chosen, positions, strict=True)])
    assert values[0] == pytest.approx(values[1], abs=1e-4)


@pytest.mark.parametrize(("logprobs", "accepted"), [(0, True), (1, True), (20, True), (21, False), (512, False)])
def test_logprobs_go_up_to_the_engines_limit(engine: EngineOnALoop, logprobs: int, accepted: bool) -> None:
    """T8."""
    if accepted:
        (step,) = engine.ask(PROMPT, stream=False, temperature=0.0, max_tokens=1, logprobs=logprobs)
        (position,) = step.pieces[0].logprobs or ()
        assert max(1, logprobs) <= len(position) <= logprobs + 1
    else:
        assert "logprobs" in refusal(engine, PROMPT, logprobs=logprobs)


@pytest.mark.parametrize(
    "prompt", ["🙂🚀🙂🚀🙂🚀", "한국어 문장도 들어 있습니다. 한국어", "Съешь ещё этих мягких булок. Съешь ещё"]
)
def test_a_limit_inside_a_character_cuts_stream_and_unary_alike(engine: EngineOnALoop, prompt: str) -> None:
    """T1: the tiny model writes bytes, so that some of these limits fall inside a character."""
    whole = text(engine.ask(prompt, **{**GREEDY, "max_tokens": 12}))
    for most in range(1, 12):
        sampling = {**GREEDY, "max_tokens": most}
        streamed, unary = engine.ask(prompt, **sampling), engine.ask(prompt, stream=False, **sampling)
        assert text(streamed) == text(unary)
        assert token_ids(streamed) == token_ids(unary)
        assert whole.startswith(text(unary).rstrip("\ufffd"))


def test_an_interval_makes_fewer_pieces_of_the_same_text(plain_engine: EngineOnALoop) -> None:
    single, several = plain_engine.ask(PROMPT, **GREEDY), plain_engine.ask(PROMPT, **GREEDY, stream_interval=8)
    assert text(single) == text(several)
    assert token_ids(single) == token_ids(several)
    assert len(several) <= len(single) / 4


def test_a_text_that_repeats_itself_can_be_ended(plain_engine: EngineOnALoop) -> None:
    detection = {"max_pattern_size": 16, "min_pattern_size": 1, "min_count": 3}
    steps = plain_engine.ask(PROMPT, temperature=0.0, max_tokens=400, ignore_eos=True, repetition_detection=detection)
    assert steps[-1].pieces[0].finish_reason == "repetition"
    assert len(token_ids(steps)) < 400


@pytest.mark.parametrize(
    "sampling",
    [
        {"repetition_penalty": 1e300},
        {"repetition_penalty": 1e-300},
        {"temperature": 1e-300},
        {"top_p": 1e-300, "temperature": 1.0},
        {"seed": 2**63 - 1, "temperature": 1.0},
        {"seed": -(2**63), "temperature": 1.0},
        {"min_tokens": 2**31 - 1},
        {"max_tokens": 2**31 - 1, "stop": ["e"]},
        {"top_k": 2**31 - 1, "temperature": 1.0},
        {"stop": ["x" * 100_000]},
        {"bad_words": [" "] * 100},
        {"bad_words": ["x" * 10_000]},
        {"bad_words": [f"{number:016}" for number in range(1024)]},
        {"allowed_token_ids": []},
        {"allowed_token_ids": [5]},
        {"allowed_token_ids": [100_000]},
        {"stop_token_ids": [2**31 - 1]},
        {"thinking_token_budget": 5},
        {"stream_interval": 2**31 - 1},
    ],
    ids=str,
)
def test_values_at_their_bounds_are_answered_or_refused_and_the_engine_goes_on(
    engine: EngineOnALoop, sampling: dict[str, Any]
) -> None:
    before = text(engine.ask(PROMPT, **GREEDY))
    message = refused(engine, PROMPT, **{"max_tokens": 4, **sampling})
    assert message is None or any(name in message for name in sampling)
    assert text(engine.ask(PROMPT, **GREEDY)) == before
    assert not engine.engine._llm.output_processor.has_unfinished_requests()  # R2


SCHEMA = {"type": "string", "enum": ["left", "right"]}


def test_a_request_that_cannot_be_sent_to_the_engine_leaves_nothing(
    engine: EngineOnALoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.engine.exceptions import EngineGenerateError

    async def unsendable(request: object) -> None:
        raise OverflowError("Integer value out of range")

    with monkeypatch.context() as patched:
        patched.setattr(engine.engine._llm.engine_core, "add_request_async", unsendable)
        with pytest.raises(EngineGenerateError):
            engine.ask(PROMPT, max_tokens=4)
    assert not engine.engine._llm.output_processor.has_unfinished_requests()  # R2
    assert len(token_ids(engine.ask(PROMPT, max_tokens=3, ignore_eos=True))) == 3


COMPACT = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
COMPACT |= {"x-guidance": {"whitespace_flexible": False}}
NAMES_BOTH = {"properties": {"a": {"const": 1}, "b": {}}, "required": ["a"], "additionalProperties": False}
COMBINED = {"type": "object", "allOf": [NAMES_BOTH, {"properties": {"b": {"const": 2}}, "required": ["b"]}]}
COMBINED |= {"x-guidance": {"whitespace_flexible": False}}
CONSTRAINTS: dict[str, tuple[dict[str, Any], str]] = {
    "json": ({"json": SCHEMA}, '"left"|"right"'),
    "json text": ({"json": json.dumps(SCHEMA)}, '"left"|"right"'),
    "regex": ({"regex": "[ab]{3}c"}, "[ab]{3}c"),
    "choice": ({"choice": ["left", "right"]}, "left|right"),
    "grammar": ({"grammar": 'root ::= "x" [0-9] "y"'}, "x[0-9]y"),
    "one of": ({"json": json.dumps({"oneOf": [{"const": "left"}, {"const": "right"}]})}, '"left"|"right"'),
    "no further properties": ({"json": json.dumps(COMPACT)}, r'\{"a":1\}'),
    "combined": ({"json": json.dumps(COMBINED)}, r'\{"a":1,"b":2\}'),
    "above 64 bits": ({"json": json.dumps({"const": 10**20})}, "1" + "0" * 20),
    "lark": ({"grammar": 'start: "x" /[0-9]/ "y"'}, "x[0-9]y"),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("stream", [True, False])
def test_the_text_is_what_the_constraint_wants(engine: EngineOnALoop, name: str, stream: bool) -> None:
    constraint, pattern = CONSTRAINTS[name]
    steps = engine.ask(PROMPT, stream=stream, temperature=0.0, max_tokens=64, structured_outputs=constraint)
    assert re.fullmatch(pattern, text(steps)), text(steps)
    assert steps[-1].pieces[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [True, False])
def test_several_sequences_each_meet_the_constraint(engine: EngineOnALoop, stream: bool) -> None:
    steps = engine.ask(
        PROMPT, stream=stream, n=3, temperature=1.0, seed=1, max_tokens=64, structured_outputs={"regex": "[ab]{8}c"}
    )
    for index in range(3):
        assert re.fullmatch("[ab]{8}c", text(steps, index))


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "((("},
        {"grammar": "no grammar at all {{{"},
        {"json": "{"},
        {"json": {"type": "no such type"}},
        {"json": {"$ref": "#/nowhere"}},
        {"structural_tag": "{}"},
        {"json": json.dumps({"allOf": [{"type": "string"}, {"type": "integer"}]})},
    ],
    ids=str,
)
def test_only_the_bad_constraint_fails(engine: EngineOnALoop, constraint: dict[str, Any]) -> None:
    """R13."""
    assert refused(engine, PROMPT, max_tokens=4, structured_outputs=constraint)
    assert text(engine.ask(PROMPT, max_tokens=8, structured_outputs={"choice": ["left"]})) == "left"
    assert len(token_ids(engine.ask(PROMPT, max_tokens=3, ignore_eos=True))) == 3


@pytest.fixture(scope="module")
def bounded(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineOnALoop]:
    """An engine of which everything that an operator may bound is bounded, with a template of the operator's."""
    options = {
        "serving.max_prompt_tokens": "40",
        "serving.max_tokens_cap": "6",
        "serving.chat_template": "{% for m in messages %}[{{ mood }}]{{ m.content }}{% endfor %}",
        "scheduling_policy": "priority",
        "max_num_seqs": "1",
        "structured_outputs_config.backend": "xgrammar",
    }
    with started({**small_engine(checkpoint), **NGRAM, **options}) as engine:
        yield engine


def test_the_operators_limits_bind(bounded: EngineOnALoop) -> None:
    assert len(token_ids(bounded.ask(TokenIds([5] * 40), ignore_eos=True))) == 6
    message = refused(bounded, TokenIds([5] * 41))
    assert message == "input_ids: the prompt has 41 tokens; serving.max_prompt_tokens allows 40."


def test_another_library_may_keep_to_constraints(bounded: EngineOnALoop) -> None:
    tag = {"type": "tag", "begin": "<", "content": {"type": "regex", "pattern": "[0-9]"}, "end": ">"}
    for constraint, pattern in (
        ({"structural_tag": json.dumps({"type": "structural_tag", "format": tag})}, "<[0-9]>"),
        ({"json": '{"oneOf": [{"const": 1}, {"const": 2}]}'}, "1|2"),
    ):
        answer = text(bounded.ask(PROMPT, structured_outputs=constraint))
        assert re.fullmatch(pattern, answer), answer


def test_the_operators_template_comes_before_the_checkpoints(bounded: EngineOnALoop) -> None:
    chat = Chat([{"role": "user", "content": PROMPT}], {"mood": "glad"})
    greedy = {**GREEDY, "max_tokens": 6}
    assert text(bounded.ask(chat, **greedy)) == text(bounded.ask(f"[glad]{PROMPT}", **greedy))


def test_a_template_that_fails_is_named(bounded: EngineOnALoop) -> None:
    message = refused(bounded, Chat([{"role": "user", "content": "x"}], {"add_generation_prompt": {}, "tools": 5}))
    assert message is not None
    assert message.startswith("messages: the chat template can't take them (")


def test_the_lower_priority_number_is_served_first(bounded: EngineOnALoop) -> None:
    import asyncio

    order: list[str] = []

    async def one(name: str, priority: int) -> None:
        async for _ in bounded.steps(name, stream=False, priority=priority, **{**GREEDY, "max_tokens": 6}):
            pass
        order.append(name)

    async def all_of_them() -> None:
        first = asyncio.ensure_future(one("first", 0))
        await asyncio.sleep(0)
        await asyncio.gather(first, *(one(f"p{number}", number) for number in (9, 5, 1)))

    bounded.loop.run(all_of_them()).result(timeout=120)
    assert order.index("p1") < order.index("p5") < order.index("p9")
