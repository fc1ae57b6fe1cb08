"""The naive way to the same moments: keep the gradient of every group, stack them, take mean and variance."""

from __future__ import annotations

import torch
from torch import nn


class Probe(nn.Module):
    """Parameters whose gradients a test chooses: the loss is the sum of parameter times the given tensor."""

    def __init__(self, shapes, dtype=torch.float32):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes)

    def forward(self, gradients):
        """Return a loss whose gradient is gradients[i] for parameter i; None leaves the parameter unused."""
        used = [(part * g).sum() for part, g in zip(self.parts, gradients, strict=True) if g is not None]
        return torch.stack(used).sum()


def group_gradients(module, loss, groups):
    """Return, per trainable parameter, the gradients of all groups stacked, or None if no group gave one.

    groups: a list of groups, each a list of (weight, batch); loss(batch) is the mean loss over the batch.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    stacks = [[] for _ in parameters]
    used = [False] * len(parameters)
    for group in groups:
        total = [torch.zeros_like(p) for p in parameters]
        for weight, batch in group:
            gradients = torch.autograd.grad(loss(batch), parameters, allow_unused=True)
            for i, gradient in enumerate(gradients):
                if gradient is not None:
                    total[i] += weight * gradient
                    used[i] = True
        for stack, gradient in zip(stacks, total, strict=True):
            stack.append(gradient)
    return [torch.stack(stack) if is_used else None for stack, is_used in zip(stacks, used, strict=True)]


def groups_with_ratio(ratio, num_groups=8, size=20_000):
    """Return group gradients with mean 1 and mean^2/variance = ratio in every element, up to float32 rounding."""
    noise = torch.randn(num_groups, size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    noise = (noise - noise.mean(0)) / noise.std(0, unbiased=False)
    return (1.0 + noise / ratio**0.5).float()


def assert_moments(module, stacks, rtol=1e-4, atol=1e-7, var_rtol=None):
    """Check `.grad` and `.grad_var` of every trainable parameter against the stacked gradients."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    for i, (parameter, stack) in enumerate(zip(parameters, stacks, strict=True)):
        if stack is None:
            assert parameter.grad is None, f"parameter {i} is unused but has a gradient"
            assert not hasattr(parameter, "grad_var"), f"parameter {i} is unused but has a variance"
            continue
        mean = stack.double().mean(0)
        variance = (stack.double() - mean).square().mean(0)
        assert parameter.grad_var.shape == parameter.shape
        torch.testing.assert_close(parameter.grad.double(), mean, rtol=rtol, atol=atol, msg=lambda m, i=i: f"{i}: {m}")
        torch.testing.assert_close(
            parameter.grad_var.double(), variance, rtol=var_rtol or rtol, atol=atol, msg=lambda m, i=i: f"var {i}: {m}"
        )


def run_step(moments, loss, groups):
    """Take one step over this worker's groups, each a list of (weight, batch)."""
    for d, group in enumerate(groups):
        for c, (weight, batch) in enumerate(group):
            end = c == len(group) - 1
            with moments.micro_batch(last=end and d == len(groups) - 1, group_end=end, weight=weight):
                loss(batch).backward()
