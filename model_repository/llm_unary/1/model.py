"""The unary model of Triton's Python backend; everything is in the package."""

from rbln_vllm_backend.triton_unary_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
