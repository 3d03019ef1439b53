"""One unary request as Triton gives it, and the call that answers it, over BLS."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from rbln_vllm_backend import unary_call
from rbln_vllm_backend.errors import RequestError, Unavailable
from rbln_vllm_backend.triton_io import FINAL, error_of, texts_of


class TritonClient:
    """A client of the unary model. Implements ``unary_door.Client``."""

    def __init__(self, triton_request: Any) -> None:
        self.request = triton_request
        self._sender = triton_request.get_response_sender()

    def answer(self, response: Any) -> None:
        """See ``unary_door.Client.answer``. The tensors are the target's own, in shared memory."""
        self._sender.send(pb_utils.InferenceResponse(output_tensors=response.output_tensors()), flags=FINAL)

    def fail(self, error: RequestError) -> None:
        """See ``unary_door.Client.fail``."""
        self._sender.send(pb_utils.InferenceResponse(error=error_of(error)), flags=FINAL)

    def is_cancelled(self) -> bool:
        """See ``unary_door.Client.is_cancelled``."""
        return bool(self._sender.is_cancelled())


class BlsTarget:
    """The decoupled model that answers. Implements ``unary_door.Target``."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name

    def ask(self, client: TritonClient, call_id: str) -> Any:
        """See ``unary_door.Target.ask``."""
        request = client.request
        request_id, parameters = texts_of(request)
        call = pb_utils.InferenceRequest(
            model_name=self._model_name,
            request_id=request_id,
            inputs=request.inputs(),
            requested_output_names=[*request.requested_output_names(), unary_call.ERROR],
            timeout=request.timeout(),
            trace=request.trace(),
            parameters=unary_call.parameters_of(call_id, parameters),
        )
        return self._answer_to(call)

    def cancel(self, call_id: str) -> None:
        """See ``unary_door.Target.cancel``."""
        call = pb_utils.InferenceRequest(
            model_name=self._model_name,
            inputs=[pb_utils.Tensor("cancel_request_id", np.array([call_id.encode()], dtype=np.object_))],
            requested_output_names=["text_output", unary_call.ERROR],
            parameters=unary_call.parameters_of("", ""),
        )
        self._answer_to(call)

    def _answer_to(self, call: Any) -> Any:
        """The last response. The iterator is always read to its end: dropped before, it would block the interpreter."""
        last = None
        for response in call.exec(decoupled=True):
            last = response
        if last is None or last.has_error():
            why = f": {last.error().message()}" if last else "."
            raise Unavailable(f"The model {self._model_name} can't be asked now{why}")
        for tensor in last.output_tensors():
            if tensor.name() == unary_call.ERROR:
                raise unary_call.error_from(tensor.as_numpy()[0].decode())
        return last
