"""The demo: serve the model repository, stream one answer to the terminal, say what speculation gave, stop."""

from __future__ import annotations

import json
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rbln_vllm_backend.embedded_server import EmbeddedServerError, ServerProcess, StubLostError

# In the chat markup of the demo model. It asks for a quotation, which n-gram speculation drafts from the prompt.
PROMPT = (
    "<|im_start|>user\nRepeat the following text exactly:\n\n"
    "The Triton Inference Server loads a language model once and serves it to many clients at the same time. "
    "A client sends a prompt and reads the answer piece by piece, while it is still being written. "
    "Speculative decoding makes the answer faster: the server guesses the next five tokens, the model checks all of "
    "them in one step, and keeps those that it would have written itself. "
    "The answer stays the same, only the waiting gets shorter.<|im_end|>\n<|im_start|>assistant\n"
)
SAMPLING = {"temperature": 0.0, "max_tokens": 128}
_HTTP, _GRPC, _METRICS = 8000, 8001, 8002
_STARTS = 3
_READY_DEADLINE_S = 300.0
_ANSWER_DEADLINE_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """What one streamed answer measured: tokens, seconds to the first and in all, and its speculation."""

    tokens: int
    first_token_s: float
    total_s: float
    draft_tokens: int
    accepted_tokens: int
    acceptance_rate: float
    mean_acceptance_length: float

    def __str__(self) -> str:
        decoding_s = max(self.total_s - self.first_token_s, 1e-9)
        return (
            f"{self.tokens} tokens, time to first token {self.first_token_s * 1000:.0f} ms, "
            f"{(self.tokens - 1) / decoding_s:.1f} tokens/s after it\n"
            f"speculation: {self.draft_tokens} tokens drafted, {self.accepted_tokens} accepted "
            f"({self.acceptance_rate:.0%}), mean acceptance length {self.mean_acceptance_length:.2f}"
        )


def run(model_repository: str) -> int:
    """Exit status 0 only if the server came up, the answer was streamed, drafts were accepted, and it stopped well."""
    folder = Path(tempfile.mkdtemp(prefix="rbln-vllm-demo-"))
    log = folder / "tritonserver.log"
    try:
        began = time.monotonic()
        server = _ready(model_repository, log)
        try:
            _say(f"Ready after {time.monotonic() - began:.0f} s. The prompt:\n\n{PROMPT}\n\nThe answer, as it comes:\n")
            outcome = stream_one(f"localhost:{_GRPC}", "llm", PROMPT, SAMPLING)
            _say(f"\n{outcome}")
        finally:
            status = server.stop()
    except EmbeddedServerError:
        if log.exists():  # and it stays: the message names it
            _say("".join(log.read_text(errors="replace").splitlines(keepends=True)[-40:]))
        else:
            folder.rmdir()
        raise
    shutil.rmtree(folder, ignore_errors=True)
    _say(f"Server stopped with status {status}.")
    return 0 if outcome.accepted_tokens > 0 and status == 0 else 1


def _ready(model_repository: str, log: Path) -> ServerProcess:
    """A server that is ready. One that Triton 24.10 hangs in its start, on a machine that stalls, is started anew."""
    starts = 0
    while True:
        starts += 1
        # Triton's own ports, named: a server that listens there already would answer in the place of this one.
        server = ServerProcess(model_repository, http_port=_HTTP, grpc_port=_GRPC, metrics_port=_METRICS, log_path=log)
        server.start()
        _say("Starting tritonserver and the vLLM engine (20 to 60 s on two cores) …")
        try:
            server.wait_ready(_READY_DEADLINE_S)
            return server
        except StubLostError:
            server.kill()
            server.wait()
            if starts == _STARTS:
                raise
            _say("Triton has lost the model's process, as it may on a machine that stalls.")
        except BaseException:
            server.stop()
            raise


def stream_one(url: str, model: str, prompt: str, sampling: dict[str, Any]) -> Outcome:
    """Streams one answer to standard output as it comes."""
    began = time.monotonic()
    first_token_s, tokens, last = 0.0, 0, None
    for result in _results(url, model, prompt, sampling):
        last = result
        if not tokens:
            first_token_s = time.monotonic() - began
        tokens += int(result.as_numpy("num_output_tokens")[0])
        sys.stdout.write(result.as_numpy("text_output")[0].decode())
        sys.stdout.flush()
    total_s = time.monotonic() - began
    sys.stdout.write("\n")
    counts = {name: float(last.as_numpy(name)[0]) if last else 0.0 for name in _COUNTS}
    return Outcome(
        tokens,
        first_token_s,
        total_s,
        int(counts["num_draft_tokens"]),
        int(counts["num_accepted_tokens"]),
        counts["acceptance_rate"],
        counts["mean_acceptance_length"],
    )


_COUNTS = ("num_draft_tokens", "num_accepted_tokens", "acceptance_rate", "mean_acceptance_length")


def _results(url: str, model: str, prompt: str, sampling: dict[str, Any]) -> Iterator[Any]:
    """The responses of one stream, in order; raises the server's error."""
    import numpy as np
    from tritonclient import grpc

    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    texts = {"text_input": prompt, "sampling_parameters": json.dumps(sampling)}
    inputs = [grpc.InferInput(name, [1], "BYTES") for name in texts]
    for tensor, text in zip(inputs, texts.values(), strict=True):
        tensor.set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
    for name in ("stream", "return_num_output_tokens", "return_speculation"):
        inputs.append(grpc.InferInput(name, [1], "BOOL"))
        inputs[-1].set_data_from_numpy(np.array([True]))
    with grpc.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        final = False
        while not final:
            try:
                result, error = arrived.get(timeout=_ANSWER_DEADLINE_S)
            except queue.Empty:
                raise EmbeddedServerError(f"The server sent nothing for {_ANSWER_DEADLINE_S:g} s.") from None
            if error is not None:
                raise EmbeddedServerError(f"The server refused the demo's request: {error}")
            final = result.get_response().parameters["triton_final_response"].bool_param
            if result.as_numpy("text_output") is not None:
                yield result


def _say(text: str) -> None:
    print(text, flush=True)
