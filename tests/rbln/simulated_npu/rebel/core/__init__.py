"""The compiler's core."""
