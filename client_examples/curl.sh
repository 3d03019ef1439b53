#!/bin/sh
# Asks one prompt with curl: the whole answer, then the same answer as a stream.
#
#   client_examples/curl.sh                                      # localhost:8000, model llm
#   URL=triton.example:8000 MODEL=llm client_examples/curl.sh
#
# PROMPT goes into the JSON as it is: write a quote as \" and a new line as \n.
set -eu
URL=${URL:-localhost:8000}
MODEL=${MODEL:-llm}
PROMPT=${PROMPT:-The quick brown fox jumps over the lazy dog.}
MAX_TOKENS=${MAX_TOKENS:-64}

# Without --fail-with-body curl's exit status is 0 also when the server refuses the request.
curl -s --show-error --fail-with-body "$URL/v2/models/$MODEL/generate" -d @- <<JSON
{"text_input": "$PROMPT", "exclude_input_in_output": true, "max_tokens": $MAX_TOKENS, "temperature": 0}
JSON
echo

# -N: no buffering, each `data:` line is printed as it comes. Lists such as `stop` go into the text of a JSON object.
curl -N -s --show-error --fail-with-body "$URL/v2/models/$MODEL/generate_stream" -d @- <<JSON
{"text_input": "$PROMPT", "stream": true, "max_tokens": $MAX_TOKENS, "temperature": 0,
 "return_finish_reason": true, "sampling_parameters": "{\"stop\": [\"###\"]}"}
JSON
