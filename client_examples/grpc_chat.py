#!/usr/bin/env python3
"""Chats in a terminal over gRPC. Ctrl-C cancels an answer and keeps what there is of it; Ctrl-D ends."""

import argparse
import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


def tensor(name, value):
    """An input of one element: a text, or true or false."""
    text = isinstance(value, str)
    made = triton.InferInput(name, [1], "BYTES" if text else "BOOL")
    made.set_data_from_numpy(np.array([value.encode()], dtype=np.object_) if text else np.array([value]))
    return made


def pieces(url, model, messages, sampling):
    """The answer's text as it comes; closing the generator cancels it."""
    inputs = [tensor("messages", json.dumps(messages)), tensor("sampling_parameters", json.dumps(sampling))]
    arrived = queue.Queue()
    with triton.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer(model, [*inputs, tensor("stream", True)], enable_empty_final_response=True)
        final = False
        try:
            while not final:
                result, error = arrived.get()
                if error is not None:
                    raise error
                yield result.as_numpy("text_output")[0].decode()
                final = result.get_response().parameters["triton_final_response"].bool_param
        finally:
            client.stop_stream(cancel_requests=not final)


def answer(url, model, messages, sampling):
    """Prints the answer as it comes, and returns what there is of it."""
    text, stream = "", pieces(url, model, messages, sampling)
    try:
        for piece in stream:
            text += piece
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        stream.close()
        print(" [cancelled]", end="")
    print()
    return text


def main():
    """Exit status 0, or 1 after the server's error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--model", default="llm")
    parser.add_argument("--system", default="You are a helpful assistant.")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--sampling", type=json.loads, default={}, help='more of it, as JSON: {"stop": ["."]}')
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # an answer may hold any character, whatever the locale
    sampling = {"max_tokens": args.max_tokens, "temperature": args.temperature, **args.sampling}
    messages = [{"role": "system", "content": args.system}]
    try:
        triton.InferenceServerClient(args.url).is_server_live()  # raises with the cause if it is out of reach
        while line := input("> "):
            messages.append({"role": "user", "content": line})
            messages.append({"role": "assistant", "content": answer(args.url, args.model, messages, sampling)})
    except InferenceServerException as error:
        sys.exit(f"error: {error.message()}")
    except (EOFError, KeyboardInterrupt):
        print()


if __name__ == "__main__":
    main()
