"""Imported by the plugin for its side effect; what is simulated is registered by ``rebel`` itself."""

attn = None
