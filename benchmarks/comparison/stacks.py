"""A sampled stack of the stub as the part of the work that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

EXCHANGE = "exchange with tritonserver for each response (`send`)"
RESPONSE = "NumPy array, tensor, response object"
OUR_STREAM = "step → stream → sender thread"
OUR_STEP = "output → step"
VLLM_REQUEST = "vLLM: the request's task and queue (AsyncLLM.generate)"
VLLM_OUTPUT = "vLLM: outputs received, detokenized, handed to their requests"
NEW_REQUESTS = "new requests: decoded, rendered, handed to the engine"
METRICS = "metrics copied on the timer"
LOOP = "event loop"
OTHER = "everything else"

# The first rule that a frame matches, from the innermost frame outwards, tells the part.
_RULES: Sequence[tuple[str, str]] = (
    ("TritonReply.send ", EXCHANGE),
    ("TritonReply._tensors ", RESPONSE),
    ("serialize_byte_tensor ", RESPONSE),
    ("_bytes (rbln_vllm_backend/triton_io.py", RESPONSE),
    ("rbln_vllm_backend/vllm_outputs.py", OUR_STEP),
    ("add_request ", NEW_REQUESTS),
    ("process_inputs ", NEW_REQUESTS),
    ("VllmEngine._outputs ", NEW_REQUESTS),
    ("rbln_vllm_backend/vllm_prompts.py", NEW_REQUESTS),
    ("TritonPythonModel.execute ", NEW_REQUESTS),
    ("Service.accept ", NEW_REQUESTS),
    ("Service._begin ", NEW_REQUESTS),
    ("AsyncLLM.generate ", VLLM_REQUEST),
    ("RequestOutputCollector.get", VLLM_REQUEST),
    ("output_handler ", VLLM_OUTPUT),
    ("process_outputs_socket ", VLLM_OUTPUT),
    ("rbln_vllm_backend/vllm_engine.py", OUR_STEP),
    ("rbln_vllm_backend/metrics_bridge.py", METRICS),
    ("rbln_vllm_backend/stream.py", OUR_STREAM),
    ("rbln_vllm_backend/service.py", OUR_STREAM),
    ("asyncio/", LOOP),
    ("threading.py", LOOP),
)


def part_of(frames: Sequence[str]) -> str:
    """The part of a stack, outermost frame first, each as py-spy writes it: ``function (file:line)``."""
    for frame in reversed(frames):
        for words, part in _RULES:
            if words in frame:
                return part
    return OTHER
