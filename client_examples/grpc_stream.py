#!/usr/bin/env python3
"""Streams one answer over gRPC: the text as it comes on stdout, the figures at its end on stderr. Ctrl-C cancels it."""

import argparse
import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

RETURNED = ("finish_reason", "num_input_tokens", "num_output_tokens", "speculation")


def tensor(name, value):
    """An input of one element: a text, or true or false."""
    text = isinstance(value, str)
    made = triton.InferInput(name, [1], "BYTES" if text else "BOOL")
    made.set_data_from_numpy(np.array([value.encode()], dtype=np.object_) if text else np.array([value]))
    return made


def responses(client, model, inputs):
    """The responses of one request, each as soon as it is there; raises the server's error."""
    client.is_server_live()  # raises with the cause if the server is out of reach; the stream alone would hide it
    arrived = queue.Queue()
    client.start_stream(lambda result, error: arrived.put((result, error)))
    client.async_stream_infer(model, inputs, enable_empty_final_response=True)
    while True:
        result, error = arrived.get()
        if error is not None:
            raise error
        yield result
        if result.get_response().parameters["triton_final_response"].bool_param:
            return


def show(response, texts):
    """Prints the new text; several sequences (n above 1) come interleaved and are gathered by their index."""
    indices = response.as_numpy("sequence_index")
    for index, text in zip([None] if indices is None else indices, response.as_numpy("text_output"), strict=True):
        if index is None:
            print(text.decode(), end="", flush=True)
        else:
            texts[index] = texts.get(index, "") + text.decode()


def figures(last, num_output_tokens):
    """What the last response says about the whole answer."""
    yield f"finish reason: {last.as_numpy('finish_reason')[-1].decode()}"
    yield f"tokens: {last.as_numpy('num_input_tokens')[0]} in, {num_output_tokens} out"
    drafted, accepted, mean = map(last.as_numpy, ("num_draft_tokens", "num_accepted_tokens", "mean_acceptance_length"))
    if drafted is not None:  # left out after a stop string: vLLM has no numbers then
        yield f"speculation: {drafted[0]} drafted, {accepted[0]} accepted, mean acceptance length {mean[0]:.2f}"


def main():
    """Exit status 0, 1 after the server's error, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default="Say it again: the quick brown fox jumps over the lazy dog.")
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--model", default="llm")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--sampling", type=json.loads, default={}, help='more of it, as JSON: {"stop": ["."]}')
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # an answer may hold any character, whatever the locale
    sampling = {"max_tokens": args.max_tokens, "temperature": args.temperature, **args.sampling}
    inputs = [tensor("text_input", args.prompt), tensor("sampling_parameters", json.dumps(sampling))]
    inputs += [tensor("stream", True), *(tensor(f"return_{name}", True) for name in RETURNED)]
    num_output_tokens, texts = 0, {}
    with triton.InferenceServerClient(args.url) as client:
        try:
            for response in responses(client, args.model, inputs):
                num_output_tokens += int(response.as_numpy("num_output_tokens").sum())  # since the last response
                show(response, texts)
        except InferenceServerException as error:
            sys.exit(f"error: {error.message()}")
        except KeyboardInterrupt:
            client.stop_stream(cancel_requests=True)  # without it, closing the client waits for the whole answer
            print(f"\ncancelled after {num_output_tokens} tokens", file=sys.stderr)
            sys.exit(130)
    print("\n".join(f"[{index}] {texts[index]}" for index in sorted(texts)))
    print(*figures(response, num_output_tokens), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
