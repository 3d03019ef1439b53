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
    file = folder / "model.safetensors"
    save_file(tensors, str(file), metadata={"format": "pt"})
    # safetensors leaves it to the owner alone; a server may run as somebody else.
    file.chmod(0o644)
