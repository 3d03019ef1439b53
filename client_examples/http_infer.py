#!/usr/bin/env python3
"""Asks several prompts at once with tritonclient.http, through the model that answers once: llm_unary."""

import argparse
import json
import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

PROMPT = "Say it again: the quick brown fox jumps over the lazy dog."


def tensor(name, value, datatype):
    """An input of one element."""
    made = triton.InferInput(name, [1], datatype)
    made.set_data_from_numpy(np.array([value], dtype=np.object_ if datatype == "BYTES" else None))
    return made


def ask(client, model, prompt, sampling):
    """Sends one prompt; the answer is waited for later."""
    inputs = [
        tensor("text_input", prompt.encode(), "BYTES"),
        tensor("sampling_parameters", json.dumps(sampling).encode(), "BYTES"),
        tensor("exclude_input_in_output", True, "BOOL"),
    ]
    return client.async_infer(model, inputs)


def main():
    """Exit status 0, or 1 if any prompt had an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompts", nargs="*", default=[PROMPT])
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", default="llm_unary")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--sampling", default="{}", help='more of it, as JSON: {"stop": ["."]}')
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # an answer may hold any character, whatever the locale
    sampling = {"max_tokens": args.max_tokens, "temperature": args.temperature, **json.loads(args.sampling)}
    address = args.url.split("://")[-1]
    failed = False
    with triton.InferenceServerClient(address, concurrency=len(args.prompts), network_timeout=600) as client:
        try:
            client.is_server_live()
        except OSError as error:
            sys.exit(f"error: {args.url}: {error}")
        for asked in [ask(client, args.model, prompt, sampling) for prompt in args.prompts]:
            try:
                print(asked.get_result().as_numpy("text_output")[0].decode())
            except InferenceServerException as error:
                print(f"error {error.status()}: {error.message()}", file=sys.stderr)
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
