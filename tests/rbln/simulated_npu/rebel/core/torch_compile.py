"""The compiler: a traced graph is not compiled for a device, but run on the CPU as it was traced."""

import torch

from rebel import _memory
from rebel.core import mega_cache


class _GraphRuntime:
    """What the plugin finds in its list of runtimes."""

    def _copy_kv_cache(self, source_block_id, destination_block_id, num_tokens):
        _memory.copy_tokens(source_block_id, destination_block_id, num_tokens)


def rbln_backend(graph, inputs, *, options=None):
    """A backend of torch.compile: the callable that executes the graph."""
    holder = (options or {}).get("_runtime_holder")
    if holder is not None:
        holder.append(_GraphRuntime())
    if (options or {}).get("cache_dir"):
        mega_cache.record(graph)

    def run(*arguments):
        return graph.forward(*map(_on_device, arguments))

    return run


def _on_device(argument):
    if isinstance(argument, torch.Tensor) and argument.device.type == "meta":
        return _memory.on_device(argument)
    return argument
