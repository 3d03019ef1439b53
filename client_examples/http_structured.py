#!/usr/bin/env python3
"""Asks over HTTP for an answer that a JSON schema describes, and reads it; nothing beyond Python's standard library."""

import argparse
import json
import sys
import urllib.error
import urllib.request

PROMPT = "A cat named Tom is 3 years old. As JSON:"
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["cat", "dog"]},
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
    },
    "required": ["kind", "name", "age"],
    "additionalProperties": False,
}


def ask(url, model, prompt, schema, max_tokens):
    """The answer as Python has it; raises ValueError if it was cut before its end."""
    sampling = {"structured_outputs": {"json": schema}, "max_tokens": max_tokens, "temperature": 0}
    fields = {
        "text_input": prompt,
        "exclude_input_in_output": True,
        "return_finish_reason": True,
        # Objects go inside the JSON text: Triton's own parameters hold single values.
        "sampling_parameters": json.dumps(sampling),
    }
    request = urllib.request.Request(f"{url}/v2/models/{model}/generate", data=json.dumps(fields).encode())
    with urllib.request.urlopen(request) as response:
        answer = json.load(response)
    if answer["finish_reason"] == "length":
        raise ValueError(f"the answer has more than {max_tokens} tokens; ask for more with --max-tokens")
    return json.loads(answer["text_output"])


def main():
    """Exit status 0, or 1 after an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default=PROMPT)
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", default="llm")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--schema", type=json.loads, default=SCHEMA, help="a JSON schema")
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # an answer may hold any character, whatever the locale
    try:
        print(json.dumps(ask(args.url, args.model, args.prompt, args.schema, args.max_tokens), ensure_ascii=False))
    except urllib.error.HTTPError as error:
        sys.exit(f"error {error.code}: {error.read().decode(errors='replace')}")
    except urllib.error.URLError as error:
        sys.exit(f"error: {args.url}: {error.reason}")
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
