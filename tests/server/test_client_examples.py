"""The client examples, each run as a stranger would run it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from model_repository import write_ticking_model
from running_server import RunningServer, free_ports, running

FOLDER = Path(__file__).parents[2] / "client_examples"
EXAMPLES = sorted(path.name for path in FOLDER.iterdir() if path.is_file())
# Those that take a prompt and --temperature; chat, structured output and side by side have tests of their own.
PYTHON_EXAMPLES = ["grpc_asyncio.py", "grpc_stream.py", "http_generate.py", "http_generate_stream.py", "http_infer.py"]
OTHER_EXAMPLES = ["curl.sh", "grpc_chat.py", "grpc_side_by_side.py", "http_structured.py"]
ONE_PROMPT = ["grpc_stream.py", "http_generate.py", "http_generate_stream.py", "http_infer.py"]

PROMPT = "The quick brown fox jumps over 게으른 개."
MAX_TOKENS = 48
GREEDY = ("--max-tokens", str(MAX_TOKENS), "--temperature", "0", "--sampling", '{"ignore_eos": true}')
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """What an example printed, and its exit status."""

    status: int
    out: str
    err: str


def address(example: str, server: RunningServer) -> str:
    """The --url of an example."""
    return server.grpc if example.startswith("grpc") else f"http://{server.http}"


def run(command: list[str], **environment: str) -> Outcome:
    """Runs a program of the folder to its end; its output is decoded as it is, without newline translation."""
    # A proxy of the machine is not asked for a server on this host.
    env = {**os.environ, "no_proxy": "localhost", **environment}
    done = subprocess.run(command, cwd=FOLDER, env=env, capture_output=True, timeout=DEADLINE_S)
    return Outcome(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


def run_python(example: str, url: str, *arguments: str, **environment: str) -> Outcome:
    """Runs one of the Python examples against a server."""
    return run([sys.executable, example, "--url", url, *arguments], **environment)


def answer(example: str, server: RunningServer, *arguments: str) -> str:
    """The text that an example of one prompt prints."""
    outcome = run_python(example, address(example, server), *arguments)
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith("\n")
    return outcome.out[:-1]


@pytest.fixture(scope="module")
def whole(server: RunningServer) -> str:
    """The unary answer to PROMPT."""
    text = answer("http_generate.py", server, PROMPT, *GREEDY)
    assert len(text) >= MAX_TOKENS / 4
    return text


def test_every_example_is_known_to_these_tests() -> None:
    assert sorted([*PYTHON_EXAMPLES, *OTHER_EXAMPLES]) == EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_short_enough_to_be_read_at_once(example: str) -> None:
    assert len((FOLDER / example).read_text(encoding="utf-8").splitlines()) < 90


def test_the_unary_answer_leaves_the_prompt_out(whole: str) -> None:
    assert not whole.startswith(PROMPT)


@pytest.mark.parametrize("example", ["grpc_stream.py", "http_generate_stream.py"])
@pytest.mark.parametrize("model", ["llm", "plain"])
def test_a_stream_prints_the_text_of_the_unary_answer(
    server: RunningServer, whole: str, example: str, model: str
) -> None:
    assert answer(example, server, PROMPT, "--model", model, *GREEDY) == whole


def test_an_answer_is_printed_as_utf8_whatever_the_terminal_says(server: RunningServer, whole: str) -> None:
    assert not whole.isascii()
    for example in ONE_PROMPT:
        outcome = run_python(example, address(example, server), PROMPT, *GREEDY, PYTHONIOENCODING="ascii")
        assert outcome == Outcome(0, f"{whole}\n", outcome.err)


def test_the_grpc_stream_ends_with_the_reason_and_every_token_counted(server: RunningServer, checkpoint: Path) -> None:
    num_input_tokens = len(Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode(PROMPT).ids)
    outcome = run_python("grpc_stream.py", server.grpc, PROMPT, *GREEDY)
    reason, tokens, speculation = outcome.err.splitlines()
    assert reason == "finish reason: length"
    assert tokens == f"tokens: {num_input_tokens} in, {MAX_TOKENS} out"
    numbers = r"speculation: (\d+) drafted, (\d+) accepted, mean acceptance length (\d+\.\d\d)"
    drafted, accepted, length = map(float, re.fullmatch(numbers, speculation).groups())
    assert drafted >= accepted > 0
    assert 1 < length <= 5


def test_the_grpc_stream_shows_zeros_without_speculation(server: RunningServer) -> None:
    outcome = run_python("grpc_stream.py", server.grpc, PROMPT, "--model", "plain", *GREEDY)
    assert outcome.err.splitlines()[2].startswith("speculation: 0 drafted, 0 accepted, ")


@pytest.mark.parametrize("example", ONE_PROMPT)
def test_a_stop_string_ends_the_text_before_it(server: RunningServer, whole: str, example: str) -> None:
    stop = next(character for character in whole[3:] if character.isascii() and character.isalpha())
    sampling = json.dumps({"ignore_eos": True, "stop": [stop]})
    outcome = run_python(example, address(example, server), PROMPT, *GREEDY[:-1], sampling)
    assert (outcome.status, outcome.out) == (0, whole.partition(stop)[0] + "\n")
    if example == "grpc_stream.py":
        assert [line.partition(":")[0] for line in outcome.err.splitlines()] == ["finish reason", "tokens"]
        assert outcome.err.startswith("finish reason: stop\n")


def test_several_prompts_at_once_get_their_own_answers(server: RunningServer) -> None:
    prompts = [PROMPT, "Tokens stream to clients", "def add(left, right): return", "🙂🚀"]
    texts = [answer("http_generate.py", server, prompt, *GREEDY) for prompt in prompts]
    assert len(set(texts)) == len(prompts)
    outcome = run_python("grpc_asyncio.py", server.grpc, *prompts, *GREEDY)
    assert (outcome.status, outcome.err) == (0, "")
    printed = [f"[{index}] {text}\n" for index, text in enumerate(texts)]
    for line in printed:
        assert line in outcome.out
    assert len(outcome.out) == len("".join(printed))


def test_curl_prints_the_whole_answer_and_then_the_stream(server: RunningServer) -> None:
    environment = {"URL": server.http, "PROMPT": PROMPT, "MAX_TOKENS": str(MAX_TOKENS)}
    outcome = run(["sh", "curl.sh"], **environment)
    assert (outcome.status, outcome.err) == (0, "")
    first, *lines = outcome.out.split("\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert len(events) > 1
    assert "".join(event["text_output"] for event in events) == json.loads(first)["text_output"]
    assert [event["finish_reason"] for event in events if "finish_reason" in event] == ["length"]


@pytest.mark.parametrize("example", PYTHON_EXAMPLES)
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--sampling", '{"temprature": 1}'), "temprature is not a sampling parameter; did you mean temperature?"),
        (("--max-tokens", "0"), "max_tokens = 0: must be an integer from 1 to 2147483647."),
        (("--model", "nobody"), "unknown model: 'nobody'"),
    ],
)
def test_what_the_server_refuses_is_named_and_ends_in_status_1(
    server: RunningServer, example: str, arguments: tuple[str, ...], named: str
) -> None:
    outcome = run_python(example, address(example, server), *arguments)
    assert (outcome.status, outcome.out.strip()) == (1, "")
    assert named in outcome.err
    assert "Traceback" not in outcome.err


def test_one_failed_prompt_leaves_the_others_alone(server: RunningServer) -> None:
    text = answer("http_generate.py", server, PROMPT, *GREEDY)
    outcome = run_python("grpc_asyncio.py", server.grpc, "", PROMPT, *GREEDY)
    assert outcome == Outcome(1, f"[1] {text}\n", "[0] error: text_input: the prompt is missing or empty.\n")


@pytest.mark.parametrize(
    ("environment", "named"),
    [({"MODEL": "nobody"}, "unknown model: 'nobody'"), ({"MAX_TOKENS": "0"}, "max_tokens = 0")],
)
def test_curl_fails_with_the_message_that_the_server_sent(
    server: RunningServer, environment: dict[str, str], named: str
) -> None:
    outcome = run(["sh", "curl.sh"], URL=server.http, **environment)
    assert outcome.status != 0
    assert named in json.loads(outcome.out)["error"]


@pytest.mark.parametrize("example", [*PYTHON_EXAMPLES, *OTHER_EXAMPLES[1:]])
def test_a_server_out_of_reach_is_said_without_a_traceback(example: str) -> None:
    url = f"localhost:{free_ports(1)[0]}"
    outcome = run_python(example, url if example.startswith("grpc") else f"http://{url}")
    assert (outcome.status, outcome.out) == (1, "")
    assert "onnection refused" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.fixture
def failing_stream() -> Iterator[str]:
    """The URL of a server whose every stream breaks off with an error after one piece."""

    class BreaksOff(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'data: {"text_output":"half"}\n\ndata: {"error":"The engine is down."}\n\n')

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with HTTPServer(("localhost", 0), BreaksOff) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_error_inside_an_http_stream_ends_in_status_1(failing_stream: str) -> None:
    outcome = run_python("http_generate_stream.py", failing_stream)
    assert outcome == Outcome(1, "half", "\nerror: The engine is down.\n")


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose answers take as long as is asked, so that none ends before it is cancelled."""
    folder = tmp_path_factory.mktemp("patient")
    write_ticking_model(folder / "models", "llm")
    with running(folder / "models", folder / "log") as started:
        yield started


def test_ctrl_c_cancels_the_grpc_stream(patient: RunningServer) -> None:
    most = 100_000
    with subprocess.Popen(
        [sys.executable, "grpc_stream.py", "--url", patient.grpc, "--max-tokens", str(most)],
        cwd=FOLDER,
        env={**os.environ, "no_proxy": "localhost"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A test run in the background of a shell ignores SIGINT, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as example:
        assert example.stdout.read(1)
        example.send_signal(signal.SIGINT)
        _, err = example.communicate(timeout=DEADLINE_S)
    tokens = re.fullmatch(r"\ncancelled after (\d+) tokens\n", err.decode("utf-8"))
    assert example.returncode == 130, err
    assert tokens is not None, err
    assert 0 < int(tokens[1]) < most


SEVERAL = ("--max-tokens", "12", "--temperature", "0.9", "--sampling", '{"n": 3, "seed": 1, "ignore_eos": true}')


def test_several_sequences_are_told_apart(server: RunningServer) -> None:
    """The same texts in the same order; the streams say each one's index."""
    whole = run_python("http_generate.py", f"http://{server.http}", PROMPT, *SEVERAL)
    assert whole.status == 0, whole.err
    assert run_python("grpc_asyncio.py", server.grpc, PROMPT, *SEVERAL).out == f"[0] {whole.out}"
    http = run_python("http_generate_stream.py", f"http://{server.http}", PROMPT, *SEVERAL)
    grpc = run_python("grpc_stream.py", server.grpc, PROMPT, *SEVERAL)
    assert http.out == grpc.out
    parts = re.split(r"(?m)^\[([012])\] ", grpc.out)
    assert parts[1::2] == ["0", "1", "2"]
    assert "".join(parts[2::2]) == whole.out


def test_a_structured_answer_is_what_the_schema_says(server: RunningServer) -> None:
    schema = '{"type": "array", "items": {"type": "string", "enum": ["left", "right"]}, "minItems": 1, "maxItems": 1}'
    outcome = run_python("http_structured.py", f"http://{server.http}", "--schema", schema, "--max-tokens", "200")
    if outcome.status:  # random weights may write white space for ever
        assert outcome.err == "error: the answer has more than 200 tokens; ask for more with --max-tokens\n"
        schema = '{"type": "string", "enum": ["left", "right"]}'
        outcome = run_python("http_structured.py", f"http://{server.http}", "--schema", schema)
    assert json.loads(outcome.out) in ("left", "right", ["left"], ["right"])


def test_a_bad_schema_is_said(server: RunningServer) -> None:
    outcome = run_python("http_structured.py", f"http://{server.http}", "--schema", '{"type": "nothing"}')
    assert (outcome.status, outcome.out) == (1, "")
    assert "error 400" in outcome.err
    assert "Traceback" not in outcome.err


def test_side_by_side_shows_speed_and_acceptance_of_the_same_text(server: RunningServer) -> None:
    sampling = ("--max-tokens", str(MAX_TOKENS), "--sampling", '{"ignore_eos": true}')
    outcome = run_python("grpc_side_by_side.py", server.grpc, PROMPT, *sampling)
    assert (outcome.status, outcome.err) == (0, "")
    first, second, same = outcome.out.splitlines()
    figures = rf": {MAX_TOKENS} tokens, [0-9.]+ tokens/s, first piece after [0-9]+ ms, [0-9.]+ tokens a response"
    assert re.fullmatch("llm" + figures + r", [0-9]+ of [0-9]+ drafted tokens accepted", first)
    assert re.fullmatch("plain" + figures, second)
    assert same == "the same text"


def chat(server: RunningServer, lines: str, *arguments: str) -> Outcome:
    """A chat whose user types these lines, and then Ctrl-D."""
    done = subprocess.run(
        [sys.executable, "grpc_chat.py", "--url", server.grpc, *arguments],
        cwd=FOLDER,
        env={**os.environ, "no_proxy": "localhost"},
        input=lines.encode(),
        capture_output=True,
        timeout=DEADLINE_S,
    )
    return Outcome(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


def test_a_chat_answers_each_line_with_the_history_before_it(server: RunningServer) -> None:
    short = ("--max-tokens", "12", "--sampling", '{"ignore_eos": true}', "--system", "Be brief.")
    one = chat(server, "hello\n", *short)
    assert (one.status, one.err) == (0, "")
    first = one.out.removeprefix("> ").removesuffix("\n> \n")
    two = chat(server, "hello\nand again\n", *short)
    assert two.out.startswith(f"> {first}\n> ")
    second = two.out.removeprefix(f"> {first}\n> ").removesuffix("\n> \n")
    history = f"<|system|>Be brief.<|end|><|user|>hello<|end|><|assistant|>{first}<|end|><|user|>and again<|end|>"
    sampling = ("--max-tokens", "12", "--temperature", "0", "--sampling", '{"ignore_eos": true}')
    assert answer("http_generate.py", server, history + "<|assistant|>", *sampling) == second


def test_ctrl_c_cancels_an_answer_of_the_chat_and_the_chat_goes_on(patient: RunningServer) -> None:
    with subprocess.Popen(
        [sys.executable, "grpc_chat.py", "--url", patient.grpc, "--max-tokens", "100000"],
        cwd=FOLDER,
        env={**os.environ, "no_proxy": "localhost"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as example:
        example.stdin.write(b"hello\n")
        example.stdin.flush()
        assert len(example.stdout.read(6)) == 6  # the prompt, and then some text
        example.send_signal(signal.SIGINT)
        said = b""
        while not said.endswith(b"[cancelled]\n> "):
            byte = example.stdout.read(1)
            assert byte, example.stderr.read()
            said += byte
        out, err = example.communicate(b"", timeout=DEADLINE_S)
    assert (example.returncode, out, err) == (0, b"\n", b"")
