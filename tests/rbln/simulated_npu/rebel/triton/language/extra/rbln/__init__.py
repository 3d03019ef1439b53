"""The device's own extensions."""
