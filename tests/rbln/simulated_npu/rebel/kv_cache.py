"""Buffers for moving a KV cache between hosts."""


def aligned_tensor(*_, **__):
    """Not simulated; imported by the plugin's connectors."""
    raise NotImplementedError("the simulated NPU moves no KV cache between hosts")
