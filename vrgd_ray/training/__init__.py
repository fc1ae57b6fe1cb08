"""The training loop (plain torch) and its Ray Train backend."""
