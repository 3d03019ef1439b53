"""LoRA adapters by name: each parameter ``serving.lora.NAME`` names a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rbln_vllm_backend import paths, rbln
from rbln_vllm_backend.errors import Fault

PREFIX = "serving.lora."


def read(parameters: Mapping[str, str], flags: Mapping[str, str], folder: Path) -> tuple[dict[str, str], list[Fault]]:
    """Adapter names with their folders (or hub ids), and every fault; ``flags`` are the engine's."""
    chosen: dict[str, str] = {}
    faults: list[Fault] = []
    for key, text in parameters.items():
        name = key.removeprefix(PREFIX)
        if not name or not text:
            faults.append(
                Fault(key, "name and folder of an adapter are wanted", f"Write {PREFIX}NAME and a path", text)
            )
            continue
        chosen[name], fault = paths.resolve(key, text, folder, marker=paths.ADAPTER)
        faults.extend([fault] if fault else [])
    if parameters and not rbln.is_on(flags, "enable_lora"):
        key = next(iter(parameters))
        faults.append(Fault(key, "the engine takes adapters only with enable_lora", 'Set enable_lora to "true"'))
    return chosen, faults
