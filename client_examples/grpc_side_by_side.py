#!/usr/bin/env python3
"""Streams the same prompt from two models over gRPC, one after the other: with speculation and without, by default.

For ``plain`` copy model_repository/llm under that name and leave its speculation out.
"""

import argparse
import json
import queue
import sys
import time

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

PROMPT = "Say it again and again: the quick brown fox jumps over the lazy dog."


def tensor(name, value):
    """An input of one element: a text, or true or false."""
    text = isinstance(value, str)
    made = triton.InferInput(name, [1], "BYTES" if text else "BOOL")
    made.set_data_from_numpy(np.array([value.encode()], dtype=np.object_) if text else np.array([value]))
    return made


def measured(client, model, prompt, sampling):
    """The whole text, and a line of figures: speed, time to the first piece, tokens in a response, acceptance."""
    inputs = [tensor("text_input", prompt), tensor("sampling_parameters", json.dumps(sampling)), tensor("stream", True)]
    inputs += [tensor("return_totals", True), tensor("return_speculation", True)]
    arrived = queue.Queue()
    began_s = time.perf_counter()
    client.start_stream(lambda result, error: arrived.put((result, error, time.perf_counter())))
    client.async_stream_infer(model, inputs, enable_empty_final_response=True)
    texts, times_s, final = [], [], False
    while not final:
        result, error, now_s = arrived.get()
        if error is not None:
            raise error
        texts.append(result.as_numpy("text_output")[0].decode())
        times_s.append(now_s - began_s)
        final = result.get_response().parameters["triton_final_response"].bool_param
    client.stop_stream()
    tokens = result.as_numpy("total_output_tokens")[0]
    drafted, accepted = (result.as_numpy(f"num_{name}_tokens") for name in ("draft", "accepted"))
    speculation = (
        "" if drafted is None or not drafted[0] else f", {accepted[0]} of {drafted[0]} drafted tokens accepted"
    )
    figures = (
        f"{tokens} tokens, {tokens / times_s[-1]:.1f} tokens/s, first piece after {times_s[0] * 1000:.0f} ms, "
        f"{tokens / len(texts):.2f} tokens a response{speculation}"
    )
    return "".join(texts), figures


def main():
    """Exit status 0, 1 after the server's error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default=PROMPT)
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--models", nargs=2, default=["llm", "plain"], metavar="MODEL")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--sampling", type=json.loads, default={}, help='more of it, as JSON: {"ignore_eos": true}')
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # an answer may hold any character, whatever the locale
    sampling = {"max_tokens": args.max_tokens, "temperature": 0, **args.sampling}
    texts = {}
    try:
        with triton.InferenceServerClient(args.url) as client:
            client.is_server_live()  # raises with the cause if the server is out of reach
            for model in args.models:
                texts[model], figures = measured(client, model, args.prompt, sampling)
                print(f"{model}: {figures}", flush=True)
    except InferenceServerException as error:
        sys.exit(f"error: {error.message()}")
    first, second = texts.values()
    print("the same text" if first == second else f"different texts:\n{first}\n---\n{second}")


if __name__ == "__main__":
    main()
