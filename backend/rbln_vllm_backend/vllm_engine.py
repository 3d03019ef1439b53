"""The engine, over vLLM; only `vllm_…` modules know its objects and what differs between its versions."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from rbln_vllm_backend import (
    shared_memory,
    vllm_constraints,
    vllm_detokenizer,
    vllm_flags,
    vllm_merged_outputs,
    vllm_outputs,
    vllm_preconditions,
    vllm_prompts,
    vllm_refusals,
    vllm_sampling,
    vllm_stop_trimming,
)
from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.engine import Generation, Step
from rbln_vllm_backend.errors import (
    ConfigError,
    EngineDown,
    EngineStartError,
    InvalidRequest,
    NotFound,
    Unavailable,
    Unsupported,
)
from rbln_vllm_backend.metrics_bridge import Sample
from rbln_vllm_backend.vllm_adapters import Adapters
from rbln_vllm_backend.vllm_prompts import PromptRenderer

_log = logging.getLogger(__name__)

_RISING = frozenset({"counter", "histogram", "summary"})  # prometheus_client's words for what only goes up
_BEGAN = "_created"
_COUNTED_EACH_STEP = frozenset({"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:kv_cache_usage_perc"})
_STOP_TIMEOUT_S = 15.0  # then vLLM kills its processes; Triton's own limit is 30 s


class VllmEngine:
    """vLLM's asynchronous engine, its core in a process of its own. Implements ``engine.Engine``."""

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._llm: Any = None
        self._prompts: PromptRenderer
        self._adapters: Adapters
        self._starting = False
        self._starts = 0
        self._memory: frozenset[Path] = frozenset()
        self._defaults: dict[str, Any] = {}
        self._constrainer = ""
        self._traces = False

    def start(self) -> str:
        """See ``engine.Engine.start``."""
        if self._starts:
            # Threads of ours hold locks by now, which a forked engine process would find locked for ever.
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        self._starts += 1
        self._starting = True
        try:
            description = self._start()
            # A killed engine leaves its queues' memory behind, and its resource tracker doesn't remove it.
            self._memory = shared_memory.mapped_by(child.pid or 0 for child in multiprocessing.active_children())
            return description
        finally:
            self._starting = False

    def _start(self) -> str:
        vllm_preconditions.require_device(self._config)
        version = vllm_preconditions.supported_version()
        from vllm.v1.engine.async_llm import AsyncLLM

        vllm_prompts.require_template(self._config.serving.chat_template)
        arguments, vllm_config = configured(self._config)
        vllm_preconditions.warn_of_images(vllm_config)
        vllm_stop_trimming.install()
        vllm_merged_outputs.repair()
        try:
            self._llm = AsyncLLM.from_vllm_config(
                vllm_config,
                enable_log_requests=arguments.enable_log_requests,
                disable_log_stats=arguments.disable_log_stats,
            )
        except Exception as error:
            said = vllm_refusals.sentence(str(error))
            raise EngineStartError(f"vLLM could not start its engine: {said}.") from error
        try:
            vllm_preconditions.require_room(vllm_config)
        except EngineStartError:
            self.stop()
            raise
        vllm_detokenizer.repair()
        self._prompts = PromptRenderer(self._llm, self._config.serving)
        self._adapters = Adapters(self._llm, self._config.adapters)
        self._defaults = vllm_sampling.defaults(vllm_config, self._config.speculation)
        self._constrainer = vllm_config.structured_outputs_config.backend
        self._traces = vllm_config.observability_config.otlp_traces_endpoint is not None
        return _description(version, vllm_config, self._config)

    async def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """See ``engine.Engine.generate``."""
        from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMNotFoundError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        speculates = self._config.speculation is not None
        try:
            async with aclosing(await self._outputs(generation)) as outputs:
                async for output in outputs:
                    if generation.embedding is not None:
                        yield vllm_outputs.vector(output)
                        continue
                    vllm_outputs.require_no_error(output, generation)
                    yield vllm_outputs.step(output, speculates)
        except EngineDeadError:
            raise EngineDown("The engine has died.") from None
        except EngineGenerateError:
            # What vLLM couldn't send to the engine's process stays registered with it, and counts as running.
            await self._llm.abort(generation.request_id)
            raise
        except VLLMNotFoundError as error:
            raise NotFound(str(error)) from error
        except VLLMClientError as error:
            raise InvalidRequest(_named(error, generation)) from error
        except GracefulHTTPError as error:
            raise Unavailable(str(error)) from error

    def failure(self) -> str | None:
        """See ``engine.Engine.failure``."""
        llm = self._llm
        return "vLLM's engine has ended" if llm is not None and llm.errored else None

    def progress(self) -> object | None:
        """See ``engine.Engine.progress``: what vLLM's own statistics have counted; None with ``disable_log_stats``."""
        return tuple(sample.value for sample in self.metrics() if sample.name in _COUNTED_EACH_STEP) or None

    def metrics(self) -> Iterator[Sample]:
        """See ``engine.Engine.metrics``. vLLM keeps them in the registry of prometheus_client, in this process."""
        from prometheus_client import REGISTRY

        for family in REGISTRY.collect():
            if family.name.startswith("vllm:"):
                yield from _samples(family)

    def stop(self) -> None:
        """See ``engine.Engine.stop``."""
        if self._starting:
            for process in multiprocessing.active_children():
                process.kill()  # vLLM takes it for a failed start, and has no other way to be stopped in one
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown(timeout=_STOP_TIMEOUT_S)
            shared_memory.remove(self._memory)

    async def _outputs(self, generation: Generation) -> Any:
        """vLLM's asynchronous iterator over the outputs of one request."""
        embedding = generation.embedding
        _require_task(await self._llm.get_supported_tasks(), embedding is not None)
        prompt = await self._prompts.render(generation.prompt, num_new_tokens=0 if embedding else 1)
        adapter = await self._adapters.get(generation.adapter)
        further = {"lora_request": adapter, "priority": generation.priority, "trace_headers": self._trace(generation)}
        if embedding is not None:
            from vllm.pooling_params import PoolingParams

            pooling = PoolingParams(task="embed", dimensions=embedding.dimensions)
            return self._llm.encode(prompt, pooling, generation.request_id, **further)
        cap = self._config.serving.max_tokens_cap
        params = vllm_sampling.params(generation, self._defaults, cap, self._constrainer)
        return self._llm.generate(prompt, params, generation.request_id, **further)

    def _trace(self, generation: Generation) -> Mapping[str, str] | None:
        """The parent of vLLM's span; nothing where it doesn't trace, which it would log as a mistake."""
        return generation.trace_headers if self._traces else None


def configured(config: BackendConfig) -> tuple[Any, Any]:
    """vLLM's engine arguments and the configuration that it makes of them; reads no weights.

    Raises:
        ConfigError: a flag that vLLM refuses by name.
        EngineStartError: what vLLM or a plugin refuses together, or another platform than was chosen.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    namespace = vllm_flags.parse(config.engine_flags, config.speculation)
    try:
        arguments = AsyncEngineArgs.from_cli_args(namespace)
        if config.speculation and arguments.per_request_spec_decode_metrics == "none":
            arguments.per_request_spec_decode_metrics = "summary"
        vllm_constraints.choose(arguments)
        vllm_config = arguments.create_engine_config()
    except ConfigError:
        raise
    except Exception as error:
        if faults := vllm_refusals.faults(error, config.engine_flags):
            raise ConfigError(faults) from error
        said = vllm_refusals.sentence(str(error))
        raise EngineStartError(f"vLLM refuses the configuration: {said}.") from error
    vllm_preconditions.require_platform(config.platform)
    return arguments, vllm_config


def _description(version: str, vllm_config: Any, config: BackendConfig) -> str:
    from vllm.platforms import current_platform

    model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
    speculation = f"speculation {config.speculation.method}" if config.speculation else "no speculation"
    return (
        f"vLLM {version} on {current_platform.device_type}, {model.model} as {model.dtype}, {speculation}, "
        f"context {model.max_model_len} tokens, at most {scheduler.max_num_seqs} sequences at once"
    )


def _samples(family: Any) -> Iterator[Sample]:
    """One family of prometheus_client's; when a series began is a sample of its own there."""
    began_s = {_series(sample): sample.value for sample in family.samples if sample.name.endswith(_BEGAN)}
    for sample in family.samples:
        if not sample.name.endswith(_BEGAN):
            rises = family.type in _RISING
            began = began_s.get(_series(sample))
            yield Sample(sample.name, family.documentation, rises, sample.labels, sample.value, began)


def _series(sample: Any) -> frozenset[tuple[str, str]]:
    """The labels of the series, which a histogram's buckets share."""
    return frozenset(label for label in sample.labels.items() if label[0] != "le")


def _require_task(supported: Sequence[str], embedding: bool) -> None:
    if embedding and "embed" not in supported:
        raise Unsupported("embedding_request: this checkpoint writes text; with runner = pooling it may give vectors.")
    if not embedding and "generate" not in supported:
        raise Unsupported("text_input: this checkpoint gives vectors, and no text; send embedding_request.")


def _named(error: Exception, generation: Generation) -> str:
    """vLLM's message in one line; those of its grammar compilers name no field."""
    text = " ".join(str(error).split())
    if "structured_outputs" in generation.sampling and not any(name in text for name in generation.sampling):
        return f"structured_outputs: {text}"
    return text
