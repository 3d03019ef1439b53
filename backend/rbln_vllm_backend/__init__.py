"""vLLM behind Triton Inference Server, on Rebellions RBLN NPUs or on a CPU.

Importing this package loads nothing heavy: Triton imports a model's file twice at every load.
"""

__version__ = "0.1.0"
