# Bare `make` lists what there is. PYTHON names the interpreter that the virtual environment is made of.
PYTHON ?= python3
BIN := .venv/bin
# pyenv keeps its interpreters off PATH.
PYENV_PYTHONS := $(subst $() $(),:,$(wildcard $(HOME)/.pyenv/versions/3.1[03].*/bin))

.DEFAULT_GOAL := help
# None of the targets is a file.
.PHONY: $(shell grep -oE '^[a-z-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | awk -F ':.*  ## ' '{printf "  make %-18s %s\n", $$1, $$2}'

environment:
	@$(PYTHON) tools/setup_environment.py

development:
	@$(PYTHON) tools/setup_environment.py --dev

demo: environment  ## set everything up, serve the demo model, stream one answer
	@$(BIN)/rbln-vllm-backend demo-model
	@$(BIN)/rbln-vllm-backend demo --model-repository model_repository

serve: environment  ## the same set-up, stays up until Ctrl-C; OPTIONS go to tritonserver
	@$(BIN)/rbln-vllm-backend demo-model
	@echo 'When it says "Started HTTPService", in another terminal:'
	@echo "  curl -N localhost:8000/v2/models/llm/generate_stream -d '{\"text_input\": \"Once upon a time\", \"stream\": true, \"max_tokens\": 64}'"
	@exec $(BIN)/rbln-vllm-backend serve --model-repository model_repository $(OPTIONS)

test: development test-unit test-pythons test-engine test-server test-rbln  ## set everything up and run every test

test-unit: development  ## the tests that need neither Triton nor vLLM (seconds)
	@$(BIN)/python -m pytest tests/unit

test-pythons: development  ## the unit tests on Python 3.10 and 3.13 with NumPy 2, where those are at hand
	@PATH="$$PATH:$(PYENV_PYTHONS)" $(BIN)/tox run

# Two at once: the start of an engine is mostly imports, one process after the other.
test-engine: development  ## the tests on the real vLLM engine
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/engine

test-server: development  ## the tests through a real tritonserver
	@$(BIN)/python -m pytest tests/server

environment-rbln: development
	@$(PYTHON) tools/setup_environment.py --rbln

test-rbln: environment-rbln  ## the tests on the real RBLN plugin, over a simulated NPU
	@.venv-rbln/bin/python -m pytest tests/rbln

fuzz: development  ## 20,000 generated requests at the parser, 2,000 at a live server (about 10 minutes)
	@RBLN_GENERATED_REQUESTS=20000 $(BIN)/python -m pytest tests/unit/test_generated_requests.py
	@RBLN_GENERATED_REQUESTS=2000 $(BIN)/python -m pytest tests/server/test_generated_requests.py

soak: soak-short-requests soak-long-streams soak-flood soak-cancels soak-cancel-storm soak-reloads soak-chaos  ## everything long (about an hour)

soak-short-requests: development  ## 100,000 short requests over 20 connections: rate and memory
	@$(BIN)/python benchmarks/soak/short_requests.py

soak-long-streams: development  ## a million streamed tokens: memory
	@$(BIN)/python benchmarks/soak/long_streams.py

soak-flood: development  ## 1,000 refused requests beside 64 streams: inter-token latency
	@$(BIN)/python benchmarks/soak/flood.py

soak-cancels: development  ## 200 cancels in every state: how soon the engine has let go
	@$(BIN)/python benchmarks/soak/cancels.py

soak-cancel-storm: development  ## 10,000 requests cancelled at once: memory, nothing left
	@$(BIN)/python benchmarks/soak/cancels.py --cancels 0 --storm 10000

soak-reloads: development  ## 20 loads and unloads: processes and memory
	@$(BIN)/python benchmarks/soak/reloads.py

soak-chaos: development  ## the engine's processes killed under 32 streams
	@$(BIN)/python benchmarks/soak/chaos.py

speculation-report: development  ## acceptance and equality of every method, through Triton (about 15 minutes)
	@$(BIN)/python benchmarks/speculation_report.py --output docs/speculation-report.md

speculation-speed: development  ## tokens a second with and without speculation on the demo model (about 12 minutes)
	@$(BIN)/rbln-vllm-backend demo-model
	@$(BIN)/python benchmarks/speculation_speed.py --output docs/speculation-speed.md

bench: development  ## tokens/s, latency, CPU beside vLLM's own server (about 30 minutes; OPTIONS="--rounds 1" and more)
	@$(BIN)/python benchmarks/serving_comparison.py $(OPTIONS)

perf-analyzer: development  ## NVIDIA's perf_analyzer on a server of its own (OPTIONS="--grpc HOST:PORT" for a running one)
	@$(BIN)/python benchmarks/perf_analyzer_report.py $(OPTIONS)

lint: development  ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: development  ## let ruff format the code
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .
