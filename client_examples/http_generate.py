#!/usr/bin/env python3
"""Asks one prompt over HTTP and prints the whole answer; nothing beyond Python's standard library."""

import argparse
import json
import sys
import urllib.error
import urllib.request

PROMPT = "Say it again: the quick brown fox jumps over the lazy dog."


def generate(url, model, fields):
    """The answer's fields, by their names on the wire."""
    request = urllib.request.Request(
        f"{url}/v2/models/{model}/generate",
        data=json.dumps(fields).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def message(error):
    """Triton's message in a response with an error status."""
    body = error.read().decode(errors="replace")
    try:
        return json.loads(body)["error"]
    except ValueError:  # not Triton's: a proxy between here and there
        return body or error.reason


def main():
    """Exit status 0, or 1 after an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default=PROMPT)
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", default="llm")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--sampling", default="{}", help='more of it, as JSON: {"stop": ["."]}')
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # an answer may hold any character, whatever the locale
    fields = {
        "text_input": args.prompt,
        "exclude_input_in_output": True,
        # Triton takes single values as fields of their own; lists, such as `stop`, go inside the JSON text.
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "sampling_parameters": args.sampling,
    }
    try:
        texts = generate(args.url, args.model, fields)["text_output"]
        print(texts if isinstance(texts, str) else "\n".join(texts))  # a list, by index, with n above 1
    except urllib.error.HTTPError as error:
        sys.exit(f"error {error.code}: {message(error)}")
    except urllib.error.URLError as error:
        sys.exit(f"error: {args.url}: {error.reason}")


if __name__ == "__main__":
    main()
