"""Streams a letter every 4 ms and has nothing of this backend: what Triton itself keeps of so many responses."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

TICK_S = 0.004
FINAL = 1


class TritonPythonModel:
    """Python backend, decoupled; ``max_tokens`` of ``sampling_parameters`` is all that it reads."""

    def execute(self, requests: list[Any]) -> None:
        """Starts a thread for each request."""
        for request in requests:
            (text,) = pb_utils.get_input_tensor_by_name(request, "sampling_parameters").as_numpy()
            arguments = request.get_response_sender(), json.loads(text)["max_tokens"]
            threading.Thread(target=_stream, args=arguments, daemon=True).start()


def _stream(sender: Any, letters: int) -> None:
    for remaining in reversed(range(letters)):
        time.sleep(TICK_S)
        letter = pb_utils.Tensor("text_output", np.array([b"a"], dtype=np.object_))
        sender.send(pb_utils.InferenceResponse([letter]), flags=0 if remaining else FINAL)
