"""Whether the server still counts this model as ready, asked in a way that is safe at every moment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import triton_python_backend_utils as pb_utils

from rbln_vllm_backend.patient_question import PatientQuestion

_NO_OUTPUT = "is this model served?"
_NOT_READY = "not ready"  # in what the server says of a model that is going, and of itself when it stops


def question(args: Mapping[str, str]) -> PatientQuestion:
    """``is_served`` for the model that was given these arguments of ``initialize``."""
    return PatientQuestion(partial(is_served, args["model_name"], int(args["model_version"])))


def is_served(model_name: str, model_version: int) -> bool:
    """False once the server has begun to unload the model, or to stop; an exchange with the server.

    The obvious question, ``pb_utils.is_model_ready``, must not be put to a server that may be stopping: it then fails,
    and the stub of Triton 24.10 reads the failure's text after the server has freed it, which ends it with SIGSEGV and
    leaves its streams open for ever. It also keeps the interpreter's lock while it waits. A call of the model that asks
    for an output which it doesn't have is refused before anything is run; the text of that refusal tells the same, and
    is kept until it is read.
    """
    try:
        refusal = pb_utils.InferenceRequest(
            model_name=model_name, model_version=model_version, requested_output_names=[_NO_OUTPUT], inputs=[]
        ).exec()
    except Exception:  # too early or too late for such a call: nothing is known
        return True
    return not (refusal.has_error() and _NOT_READY in refusal.error().message())
