"""The kernel language of rebel-compiler (nothing of Triton Inference Server): definitions only, never compiled.

The plugin's own kernels (``use_custom_kernel``) are defined in it at import, and not run here.
"""


def jit(kernel):
    """Marks a kernel."""
    return kernel
