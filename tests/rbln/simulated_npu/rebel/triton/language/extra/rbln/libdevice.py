"""Functions of the device: none is called, since no kernel runs."""
