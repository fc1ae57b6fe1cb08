"""Experiment tracking: a small protocol, MLflow behind it, and nothing behind it."""
