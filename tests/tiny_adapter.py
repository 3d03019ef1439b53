"""A LoRA adapter for the tiny checkpoint, strong enough to change what it writes."""

from __future__ import annotations

import json
from pathlib import Path

_RANK = 4
_HIDDEN = 64


def make(folder: Path, seed: int = 1) -> Path:
    """Writes the adapter into the folder (a few kB) and returns it."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(2):
        name = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        weights[f"{name}.lora_A.weight"] = torch.randn(_RANK, _HIDDEN, generator=generator)
        weights[f"{name}.lora_B.weight"] = torch.randn(_HIDDEN, _RANK, generator=generator)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    document = {
        "peft_type": "LORA",
        "r": _RANK,
        "lora_alpha": 2 * _RANK,
        "target_modules": ["o_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(document))
    return folder
