"""Hyper-parameter search: spaces, one Optuna study per cell, and the Ray Tune run that trains the jobs."""
