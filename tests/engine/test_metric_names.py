"""The names in tests/vllm_metrics.txt, which the dashboard's test trusts, are what the installed vLLM registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# In a process of its own: a registry takes each metric once. No engine is started.
REGISTER = """
import sys
from prometheus_client import REGISTRY
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.metrics.loggers import PrometheusStatLogger

ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
arguments = AsyncEngineArgs(
    model=sys.argv[1], dtype="float32", max_model_len=512, enforce_eager=True, speculative_config=ngram
)
PrometheusStatLogger(arguments.create_engine_config(), [0])
for family in REGISTRY.collect():
    print(*(sample.name for sample in family.samples if sample.name.startswith("vllm:")), sep="\\n", file=sys.stderr)
"""


def test_the_recorded_names_are_vllms(checkpoint: Path) -> None:
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}
    command = [sys.executable, "-c", REGISTER, str(checkpoint)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    recorded = set((ROOT / "tests" / "vllm_metrics.txt").read_text().split())
    assert recorded <= set(done.stderr.split())
