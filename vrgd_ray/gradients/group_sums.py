"""Running sum and spread of one worker's group gradients, parameter by parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vrgd_ray.config import ConfigError
from vrgd_ray.gradients.ownership import owned


def moment_dtype(parameter: Tensor) -> torch.dtype:
    """Dtype of the parameter's moments: float32, or float64 for a float64 parameter."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Chunk:
    """One micro-batch: a group, or a part of one."""

    weight: float
    """Share of the chunk in its group, 0..1."""
    group_end: bool
    """True on the last chunk of the group."""
    last: bool
    """True on the last chunk of the step."""
    inverse_scale: Tensor | None = None
    """1 / loss scale, 0-d; None where losses are not scaled."""


@dataclass
class Moments:
    """Mean and variance of every parameter (None where no group gave a gradient) over `num_groups` groups."""

    means: list[Tensor | None]
    variances: list[Tensor | None]
    num_groups: int | Tensor


class GroupSums:
    """Folds group gradients g_1, g_2, ... into their sum and their sum of squared deviations from the running mean.

    The spread follows Youngs and Cramer: M2 += (n+1)/n * (g - S/(n+1))^2, where S already contains the (n+1)-th group;
    nothing large is ever subtracted from something large, so it stays right where the mean square minus the squared
    mean would have cancelled. A group that gives a parameter no gradient costs nothing: only the groups that do are
    counted, and `spread_around` adds the zeros at the end.

    Gradients are taken over from `.grad` and edited in place, so a step needs two buffers per parameter (S and M2)
    beside the gradient that backward writes anyway.

    in_float64: keep the sums in float64, whatever the parameter's dtype.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, in_float64: bool = False) -> None:
        self.parameters = list(parameters)
        self.sum_dtypes = [torch.float64 if in_float64 else moment_dtype(parameter) for parameter in parameters]
        self.clear()

    def clear(self) -> None:
        """Forget all groups."""
        size = len(self.parameters)
        self.num_groups = 0
        self.weight = 0.0
        self.counts = [0] * size
        self.sums: list[Tensor | None] = [None] * size
        self.spreads: list[Tensor | None] = [None] * size
        self._groups: list[Tensor | None] = [None] * size
        self._arrivals = 0

    @property
    def empty(self) -> bool:
        """True before the first chunk of a step."""
        return self.num_groups == 0 and self.weight == 0.0

    def partial(self, index: int) -> Tensor | None:
        """Return what has been summed so far for a parameter, None if it got no gradient yet."""
        return self.sums[index] if self.sums[index] is not None else self._groups[index]

    def fold(self, indices: Iterable[int], chunk: Chunk) -> None:
        """Take over the gradients of these parameters; `end_chunk` follows once all parameters are folded.

        Raises ConfigError for a sparse gradient.
        """
        arrived = [i for i in indices if self.parameters[i].grad is not None]
        self._arrivals += len(arrived)
        gradients = self._take(arrived)
        if arrived and chunk.inverse_scale is not None:
            torch._foreach_mul_(gradients, chunk.inverse_scale)
        if arrived and chunk.weight != 1.0:
            torch._foreach_mul_(gradients, chunk.weight)
        for i, gradient in zip(arrived, gradients, strict=True):
            group = self._groups[i]
            self._groups[i] = gradient if group is None else group.add_(gradient)
        if chunk.group_end:
            self._fold_groups(indices)

    def end_chunk(self, chunk: Chunk) -> None:
        """Count the chunk; raises RuntimeError if no parameter got a gradient from it."""
        if self._arrivals == 0:
            raise RuntimeError("no parameter got a gradient: call loss.backward() inside the micro_batch context.")
        self._arrivals = 0
        self.weight = 0.0 if chunk.group_end else self.weight + chunk.weight
        self.num_groups += chunk.group_end

    def spread_around(self, index: int, mean: Tensor, num_groups: int) -> Tensor:
        """Return the sum over `num_groups` groups of (g - mean)^2; groups without a gradient count as zero.

        Uses up the sum and the spread of the parameter.
        """
        count, total, spread = self.counts[index], self.sums[index], self.spreads[index]
        if total is None:
            return mean.square().mul_(num_groups)
        deviation = total.div_(count).sub_(mean)
        spread = torch.zeros_like(deviation) if spread is None else spread
        spread.addcmul_(deviation, deviation, value=count)
        return spread.addcmul_(mean, mean, value=num_groups - count) if num_groups > count else spread

    def _take(self, indices: Sequence[int]) -> list[Tensor]:
        """Empty `.grad` of these parameters and return the tensors, each the only user of its memory."""
        gradients = []
        for i in indices:
            parameter = self.parameters[i]
            gradient = parameter.grad
            assert gradient is not None
            parameter.grad = None
            _refuse_sparse(i, gradient)
            gradients.append(cast(gradient if owned(gradient) else gradient.clone(), self.sum_dtypes[i]))
        return gradients

    def _fold_groups(self, indices: Iterable[int]) -> None:
        by_count: dict[int, list[int]] = defaultdict(list)
        for i in indices:
            if self._groups[i] is not None:
                by_count[self.counts[i]].append(i)
        for count, members in by_count.items():
            self._fold_nth(count, members, present(self._groups, members))
            for i in members:
                self._groups[i] = None
                self.counts[i] = count + 1

    def _fold_nth(self, count: int, members: list[int], groups: list[Tensor]) -> None:
        """Fold the groups of parameters that have all seen `count` groups before."""
        if count == 0:
            _assign(self.sums, members, groups)
            return
        sums = present(self.sums, members)
        torch._foreach_add_(sums, groups)
        torch._foreach_sub_(groups, sums, alpha=1.0 / (count + 1))
        if count == 1:
            torch._foreach_mul_(groups, groups)
            torch._foreach_mul_(groups, 2.0)
            _assign(self.spreads, members, groups)
        else:
            torch._foreach_addcmul_(present(self.spreads, members), groups, groups, value=(count + 1) / count)


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor in that dtype; the comparison is much cheaper than a call of `to` that changes nothing."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def present(tensors: list[Tensor | None], indices: Iterable[int]) -> list[Tensor]:
    """Return the tensors at these indices that are not None."""
    return [tensor for i in indices if (tensor := tensors[i]) is not None]


def _assign(target: list[Tensor | None], indices: Iterable[int], tensors: Iterable[Tensor]) -> None:
    for i, tensor in zip(indices, tensors, strict=True):
        target[i] = tensor


def _refuse_sparse(index: int, gradient: Tensor) -> None:
    if gradient.layout != torch.strided:
        raise ConfigError(
            f"trainable parameter {index}, of shape {tuple(gradient.shape)}, got a gradient with layout "
            f"{gradient.layout}; GradientMoments needs dense gradients (for an embedding: sparse=False)."
        )
