"""The model that Triton's Python backend runs: the wiring, and nothing else."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rbln_vllm_backend import (
    __version__,
    config,
    environment,
    fixed_config,
    kept_memory,
    npu_groups,
    orphan_guard,
    serving_options,
    terms,
    triton_io,
    triton_log,
    triton_metrics,
    triton_readiness,
    unary_call,
)
from rbln_vllm_backend.errors import BackendError, as_request_error
from rbln_vllm_backend.metrics_bridge import MetricsBridge
from rbln_vllm_backend.request import Cancellation
from rbln_vllm_backend.service import Service
from rbln_vllm_backend.supervision import Supervision
from rbln_vllm_backend.vllm_engine import VllmEngine
from rbln_vllm_backend.watch import Watch

_log = logging.getLogger(__name__)


class TritonPythonModel:
    """One instance of the model: ``initialize`` loads, ``execute`` hands over, ``finalize`` undoes."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Adds the protocol's tensors to config.pbtxt; runs in a process of its own at every load."""
        triton_io.complete(auto_complete_model_config)
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Checks the configuration, starts the engine, then our threads."""
        with triton_log.loading(args["model_name"]) as self._log_lines:
            self._start(args)

    def _start(self, args: dict[str, str]) -> None:
        model_config = json.loads(args["model_config"])
        fixed_config.require(model_config, streams=True)
        instance_groups = npu_groups.instance_groups_of(model_config)
        settings = config.read(config.parameters_of(model_config), Path(args["model_repository"]), instance_groups)
        npus = npu_groups.variables(settings.serving.npu_groups, args["model_instance_name"])
        _log.info("The platform is %s", settings.platform)
        for note in settings.notes:
            _log.warning("%s", note)
        names = environment.names_of_processes(args["model_name"])
        environment.prepare({**names, **settings.environment, **npus}, settings.platform)
        engine = VllmEngine(settings)
        options = settings.serving
        self._service = Service(engine, options)
        self._terms = terms.of(settings)
        is_served = triton_readiness.question(args)
        orphan_guard.follow_server(os.getppid())
        _log.info("rbln-vllm-backend %s: %s; %s", __version__, engine.start(), serving_options.limits(options))
        self._service.start()
        self._supervision = Supervision(engine, self._service, options.engine_restarts, options.engine_stall_s)
        self._watch = Watch(self._service, is_served, options.cancel_poll_interval_s, options.drain_timeout_s)
        self._supervision.start()
        self._watch.start()
        self._metrics = self._start_metrics(engine, options.metrics_interval_s, args)
        kept_memory.keep()

    @staticmethod
    def _start_metrics(engine: VllmEngine, interval_s: float, args: dict[str, str]) -> MetricsBridge | None:
        if not interval_s or not triton_metrics.TritonMetrics.are_on():
            why = "the server has none" if interval_s else "serving.metrics_interval_s is 0"
            _log.info("The engine's metrics are not copied to the server's: %s", why)
            return None
        labels = {
            "model": args["model_name"],
            "version": args["model_version"],
            "instance": args["model_instance_name"],
        }
        bridge = MetricsBridge(engine.metrics, triton_metrics.TritonMetrics(labels), interval_s)
        bridge.start()
        _log.info("The engine's metrics are copied to the server's every %g s", interval_s)
        return bridge

    def execute(self, requests: Sequence[Any]) -> None:
        """Decodes each request and hands it over; answers go through its response sender."""
        for request in requests:
            reply = triton_io.TritonReply(request)
            try:
                call = unary_call.read(triton_io.parameters_of(request))
                if call.id is not None:
                    reply.acknowledge_call()
                self._hand_over(request, call, reply)
            except Exception as error:
                request_id = uuid.uuid4().hex
                if not isinstance(error, BackendError):
                    _log.exception("Request %s could not be decoded", request_id)
                reply.fail(as_request_error(error, request_id))

    def _hand_over(self, request: Any, call: unary_call.Call, reply: triton_io.TritonReply) -> None:
        decoded = triton_io.decode(request, call.parameters, self._terms)
        if isinstance(decoded, Cancellation):
            self._service.cancel_named(decoded.name, reply)
            return
        if call.id is not None:
            unary_call.require_unary(decoded.stream)
        reply.expect(decoded)
        self._service.accept(decoded, reply, call.id)

    def is_ready(self) -> bool:
        """Whether requests are taken now; asked by servers from 26.03 on, so it must not take long."""
        return self._service.is_accepting

    def finalize(self) -> None:
        """Stops everything; Triton calls it after the last open request has ended."""
        self._watch.stop()
        self._supervision.stop()
        if self._metrics is not None:
            self._metrics.stop()
        self._service.stop()
        self._supervision.release()
        self._log_lines.stop()
