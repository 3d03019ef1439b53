"""Asks the language model from inside the server: a prompt before, something done with the answer after."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

SAMPLING = {"max_tokens": 24, "temperature": 0.0, "stop": ["\n"]}


def text(name, value):
    """A tensor of one text."""
    return pb_utils.Tensor(name, np.array([value.encode()], dtype=np.object_))


class TritonPythonModel:
    """Answers a question in one line."""

    def execute(self, requests):
        """One response for each request; an error is handed on with its code."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """The response to one question."""
        question = pb_utils.get_input_tensor_by_name(request, "question").as_numpy()[0].decode()
        call = pb_utils.InferenceRequest(
            model_name="llm_unary",  # the decoupled `llm` would need exec(decoupled=True), and loses late errors
            inputs=[
                text("text_input", f"Question: {question}\nAnswer:"),
                text("sampling_parameters", json.dumps(SAMPLING)),
                pb_utils.Tensor("exclude_input_in_output", np.array([True])),
            ],
            requested_output_names=["text_output"],
        )
        response = call.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        said = pb_utils.get_output_tensor_by_name(response, "text_output").as_numpy()[0].decode()
        return pb_utils.InferenceResponse([text("answer", said.strip())])
