"""LoRA adapters in the engine, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rbln_vllm_backend.errors import RequestError


class Adapters:
    """Each is loaded at its first use, by itself: an adapter that can't be loaded fails its requests only."""

    def __init__(self, llm: Any, folders: Mapping[str, str]) -> None:
        self._llm = llm
        self._folders = folders
        self._numbers = {name: number for number, name in enumerate(folders, start=1)}
        self._loaded: dict[str, Any] = {}
        self._locks = {name: asyncio.Lock() for name in folders}

    async def get(self, name: str | None) -> Any:
        """vLLM's ``LoRARequest`` for an adapter of the configuration, None for none.

        Raises:
            RequestError: vLLM can't load it.
        """
        if name is None:
            return None
        async with self._locks[name]:
            if name not in self._loaded:
                self._loaded[name] = await self._load(name)
        return self._loaded[name]

    async def _load(self, name: str) -> Any:
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.exceptions import EngineDeadError

        request = LoRARequest(name, self._numbers[name], self._folders[name])
        try:
            # Left to the first step that needs it, a broken adapter would end the engine.
            await self._llm.add_lora(request)
        except EngineDeadError:
            raise
        except Exception as error:
            raise RequestError(f"lora_name = {name!r}: vLLM can't load the adapter ({error}).") from error
        return request
