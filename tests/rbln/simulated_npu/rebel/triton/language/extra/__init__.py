"""Extensions of the kernel language."""
