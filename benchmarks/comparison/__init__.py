"""vLLM's engine behind different doors, measured with the same load: see ``benchmarks/serving_comparison.py``."""
