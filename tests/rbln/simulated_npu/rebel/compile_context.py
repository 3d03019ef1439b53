"""What graphs of one model share on the device."""

from rebel import _memory


class CompileContext:
    """Shares weights and static addresses among graphs; here there is one process-wide memory."""

    def __init__(self, use_weight_sharing=False, use_global_ctx=False):
        self.use_weight_sharing = use_weight_sharing
        self.use_global_ctx = use_global_ctx

    def mark_static_address(self, tensor, name):
        """Gives a KV cache its memory on the device; the tensor itself stays on "meta"."""
        _memory.allocate(tensor, name)
