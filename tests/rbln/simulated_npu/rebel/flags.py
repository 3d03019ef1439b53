"""Flags of the runtime."""

RBLN_PROFILER = False
