"""The unary model that Triton's Python backend runs, in front of the decoupled one: the wiring, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from rbln_vllm_backend import config, fixed_config, orphan_guard, triton_io, triton_log, triton_readiness, unary_options
from rbln_vllm_backend.triton_unary_call import BlsTarget, TritonClient
from rbln_vllm_backend.unary_door import UnaryDoor
from rbln_vllm_backend.watch import Watch


class TritonPythonModel:
    """One instance of the unary model: ``execute`` hands over, the answer goes through the response sender."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Adds the protocol's tensors to config.pbtxt; runs in a process of its own at every load."""
        triton_io.complete(auto_complete_model_config, decoupled=False)
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Checks the configuration. The target need not be there yet."""
        with triton_log.loading(args["model_name"]) as self._log_lines:
            self._start(args)

    def _start(self, args: dict[str, str]) -> None:
        model_config = json.loads(args["model_config"])
        fixed_config.require(model_config, streams=False)
        options = unary_options.read(config.parameters_of(model_config))
        self._door = UnaryDoor(BlsTarget(options.target_model), options.max_inflight_requests)
        is_served = triton_readiness.question(args)
        self._watch = Watch(self._door, is_served, options.cancel_poll_interval_s, options.drain_timeout_s)
        orphan_guard.follow_server(os.getppid())
        self._watch.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Hands each request over."""
        for request in requests:
            self._door.accept(TritonClient(request))

    def finalize(self) -> None:
        """Stops everything; Triton calls it after the last open request has ended."""
        self._watch.stop()
        self._door.stop()
        self._log_lines.stop()
