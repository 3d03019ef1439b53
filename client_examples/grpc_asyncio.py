#!/usr/bin/env python3
"""Asks several prompts at once over one gRPC connection; each answer is printed, with its index, when it is ready."""

import argparse
import asyncio
import json
import sys

import grpc
import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

PROMPTS = ["The quick brown fox", "Once upon a time", "def add(left, right):"]


def tensor(name, value):
    """An input of one element: a text, or true or false."""
    text = isinstance(value, str)
    made = triton.InferInput(name, [1], "BYTES" if text else "BOOL")
    made.set_data_from_numpy(np.array([value.encode()], dtype=np.object_) if text else np.array([value]))
    return made


async def answer(client, model, prompt, sampling):
    """The whole answer to one prompt; raises the server's error."""

    async def requests():
        inputs = [tensor("text_input", prompt), tensor("sampling_parameters", json.dumps(sampling))]
        yield {"model_name": model, "inputs": [*inputs, tensor("exclude_input_in_output", True)]}

    texts = []
    # Triton serves a decoupled model over a stream only; one for each prompt, since an error there has no request id.
    async for result, error in client.stream_infer(requests()):
        if error is not None:
            raise error
        texts += [text.decode() for text in result.as_numpy("text_output")]  # n of them, in the order of their index
    return "\n".join(texts)


async def answer_and_print(client, index, model, prompt, sampling):
    """Whether the prompt got an answer; a failure leaves the other prompts alone."""
    try:
        print(f"[{index}] {await answer(client, model, prompt, sampling)}", flush=True)
    except InferenceServerException as error:
        print(f"[{index}] error: {error.message()}", file=sys.stderr)
    except grpc.RpcError as error:  # the connection's fault; tritonclient hands it on as it is
        print(f"[{index}] error: {error.details()}", file=sys.stderr)
    else:
        return True
    return False


async def ask(url, model, prompts, sampling):
    """Whether every prompt got an answer."""
    async with triton.InferenceServerClient(url) as client:
        asked = (answer_and_print(client, index, model, prompt, sampling) for index, prompt in enumerate(prompts))
        return all(await asyncio.gather(*asked))


def main():
    """Exit status 0, or 1 if one of the prompts failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompts", nargs="*", default=PROMPTS)
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--model", default="llm")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--sampling", type=json.loads, default={}, help='more of it, as JSON: {"stop": ["."]}')
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # an answer may hold any character, whatever the locale
    sampling = {"max_tokens": args.max_tokens, "temperature": args.temperature, **args.sampling}
    sys.exit(0 if asyncio.run(ask(args.url, args.model, args.prompts, sampling)) else 1)


if __name__ == "__main__":
    main()
