"""The compiler's operators."""
