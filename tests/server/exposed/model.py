"""The backend's own model, whose process shows prometheus_client's registry on the port that the environment names."""

from __future__ import annotations

import os
from typing import Any

from rbln_vllm_backend import triton_model


class TritonPythonModel(triton_model.TritonPythonModel):
    def initialize(self, args: dict[str, str]) -> None:
        super().initialize(args)
        from prometheus_client import start_http_server

        self._registry: Any = start_http_server(int(os.environ["TEST_REGISTRY_PORT"]), addr="127.0.0.1")

    def finalize(self) -> None:
        server, thread = self._registry
        server.shutdown()
        server.server_close()
        thread.join()
        super().finalize()
