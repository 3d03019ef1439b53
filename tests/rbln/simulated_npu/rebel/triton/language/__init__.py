"""Words that stand in the signatures of kernels."""


class constexpr:
    """A parameter that is known when a kernel is compiled."""
