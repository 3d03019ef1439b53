#!/usr/bin/env python3
"""Streams one answer over HTTP as server-sent events; nothing beyond Python's standard library."""

import argparse
import json
import sys
import urllib.error
import urllib.request

PROMPT = "Say it again: the quick brown fox jumps over the lazy dog."


def events(url, model, fields):
    """The fields of each response, as soon as it is there. The end of the body is the end of the answer."""
    request = urllib.request.Request(
        f"{url}/v2/models/{model}/generate_stream",
        data=json.dumps(fields).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data:"):  # the others are the empty lines between events
                yield json.loads(line.removeprefix(b"data:"))


def listed(value):
    """Triton writes a tensor of one element as that element."""
    return value if isinstance(value, list) else [value]


def message(error):
    """Triton's message in a response with an error status."""
    body = error.read().decode(errors="replace")
    try:
        return json.loads(body.removeprefix("data:"))["error"]  # an event too, if the model is the one that refuses
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
        "stream": True,
        # Triton takes single values as fields of their own; lists, such as `stop`, go inside the JSON text.
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "sampling_parameters": args.sampling,
    }
    several = {}
    try:
        for event in events(args.url, args.model, fields):
            if "error" in event:  # the status was sent before the answer began, so a late error comes as an event
                sys.exit(f"\nerror: {event['error']}")
            if "sequence_index" not in event:
                print(event["text_output"], end="", flush=True)
                continue
            # Several sequences (n above 1) come interleaved: one text, or a list of them, with as many indices.
            for index, text in zip(*(listed(event[name]) for name in ("sequence_index", "text_output")), strict=True):
                several[index] = several.get(index, "") + text
        print("\n".join(f"[{index}] {several[index]}" for index in sorted(several)))
    except urllib.error.HTTPError as error:
        sys.exit(f"error {error.code}: {message(error)}")
    except urllib.error.URLError as error:
        sys.exit(f"error: {args.url}: {error.reason}")


if __name__ == "__main__":
    main()
