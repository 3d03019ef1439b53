"""A checkpoint's files as Hugging Face lays them out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import PretrainedConfig


def write(folder: Path, config: PretrainedConfig, weights: Mapping[str, Tensor]) -> None:
    """Writes config.json and model.safetensors."""
    folder.mkdir(parents=True)
    config.save_pretrained(folder)
    tensors = {name: weight.detach().contiguous() for name, weight in weights.items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
