"""Parameters with random values, and moments computed by brute force from random group gradients."""

import torch
from torch import nn


def parameters(shapes, dtype=torch.float64, seed=0):
    """Parameters with random values."""
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes]


def set_moments(params, seed, groups=4, var_dtype=None):
    """Give every parameter the mean and the variance of random group gradients; new tensors, as after a new batch."""
    generator = torch.Generator().manual_seed(seed)
    for param in params:
        signal = torch.randn(param.shape, generator=generator, dtype=torch.float64)
        noise = torch.randn((groups, *param.shape), generator=generator, dtype=torch.float64)
        stacked = signal + noise
        wide = torch.float64 if param.dtype == torch.float64 else torch.float32
        param.grad = stacked.mean(0).to(param.dtype)
        param.grad_var = stacked.var(0, correction=0).to(var_dtype or wide)
