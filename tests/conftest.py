"""Shared by all tests. Folders have no __init__.py, so names of test modules are unique across folders."""

import torch

torch.set_num_threads(1)
