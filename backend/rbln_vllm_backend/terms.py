"""What a model grants its clients: the operator's limits, and what its engine was set up for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.serving_options import ServingOptions


@dataclass(frozen=True)
class Terms:
    """The options that bind a request; the speculative method, if any; whether priorities count; LoRA adapters."""

    options: ServingOptions = field(default_factory=ServingOptions)
    speculative_method: str | None = None
    by_priority: bool = False
    adapters: Collection[str] = ()

    @property
    def chat_template_kwargs(self) -> Mapping[str, Any]:
        """What the chat template is told unless the client says otherwise."""
        return self.options.default_chat_template_kwargs


def of(config: BackendConfig) -> Terms:
    """The terms that a checked configuration sets."""
    return Terms(
        options=config.serving,
        speculative_method=config.speculation.method if config.speculation else None,
        by_priority=config.engine_flags.get("scheduling_policy") == "priority",
        adapters=config.adapters,
    )
