"""Mean and variance of the gradient over the groups of one optimizer step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vrgd_ray.config import ConfigError, require
from vrgd_ray.gradients.bucket_reducer import BucketReducer
from vrgd_ray.gradients.folding import Folding
from vrgd_ray.gradients.group_sums import Chunk, GroupSums, Moments, cast, moment_dtype
from vrgd_ray.gradients.local_reducer import LocalReducer
from vrgd_ray.gradients.noise_scale import NoiseScale
from vrgd_ray.gradients.supported import refuse_unsupported

GRAD_VAR = "grad_var"
MIN_GROUPS_WITHOUT_WARNING = 8
WEIGHT_TOLERANCE = 1e-6


class GradientMoments:
    """Leaves in `.grad` the mean and in `.grad_var` the variance of the gradient over all groups of all workers.

        moments = GradientMoments(model)                    # nn.Module or DistributedDataParallel
        for i, (x, y) in enumerate(micro_batches):          # this worker's share of the global batch
            with moments.micro_batch(last=i == len(micro_batches) - 1):
                loss(model(x), y).backward()                # mean loss over the micro-batch
        optimizer.step(); optimizer.zero_grad()

    With g_d the gradient of the mean loss of group d = 1..k (arXiv 2309.13681, eq. 7), `.grad` = sum(g_d)/k is what
    plain accumulation, or DistributedDataParallel, would have left, and `.grad_var` = sum((g_d - .grad)^2)/k has its
    shape, in float32 (float64 for float64 parameters). `.grad` has the dtype torch gives gradients: that of the
    parameter, or `parameter.grad_dtype` where set; torch.float32 there keeps the mean of a bfloat16 parameter exact.

    A parameter without gradient in some groups has zero gradient in those; without any in the whole step, on every
    worker, it keeps `.grad` None. Which parameters are trainable is read at construction.

    group_size: samples in one group; needed for `noise_scale` only.
    grad_scaler: the `torch.amp.GradScaler` that scales the losses. Groups are un-scaled before squaring. `.grad` is
        left scaled, for the usual `scaler.step(optimizer); scaler.update()`, while `.grad_var` is that of the un-scaled
        gradient; an infinity on any worker reaches all workers, so that all skip alike. Call
        `scaler.unscale_(optimizer)` before `clip_grad_norm_`, as in torch.
    compress: "bf16" sends the variance between workers in bfloat16, in a second collective after backward: 1.5 times
        the bytes of DistributedDataParallel instead of 2; the mean stays exact. Without effect on one worker.
        None sends sums of squares in float32, right to 0.4 % where mean^2/variance is 1e4, to about 10 % at 1e5; "bf16"
        has no such limit.
    deterministic: sum and reduce in float64, so that the order of the sums, which depends on the number of workers,
        drowns in the rounding of the result to the parameter's dtype. Twice the memory and bytes of the sums.

    With DistributedDataParallel all micro-batches run inside `no_sync`; sums and spreads of all parameters of a bucket
    travel in one collective while the last backward still runs. Buffers are broadcast once a step, as usual.

    Raises ConfigError for models it cannot serve: FSDP, DTensor parameters, `static_graph=True`, a
    DistributedDataParallel module deeper inside, complex or lazy parameters, nothing to train; later for sparse
    gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        group_size: int | None = None,
        grad_scaler: torch.amp.GradScaler | None = None,
        compress: str | None = None,
        deterministic: bool = False,
    ) -> None:
        require(compress in (None, "bf16"), f"compress = {compress!r}; use None or 'bf16'.")
        model = getattr(model, "_orig_mod", model)  # torch.compile wraps the module the user built
        refuse_unsupported(model)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._noise_scale = NoiseScale(group_size) if group_size is not None else None
        self._grad_scaler = grad_scaler if grad_scaler is not None and grad_scaler.is_enabled() else None
        self._loss_scale: Tensor | None = None
        self._inverse_scale: Tensor | None = None
        self._sums = GroupSums(self._parameters, in_float64=deterministic)
        self._reducer: LocalReducer | BucketReducer = LocalReducer(self._sums)
        if isinstance(model, DistributedDataParallel):
            self._reducer = BucketReducer(self._sums, model, compress == "bf16")
        self._folding = Folding(self._sums, self._reducer.buckets, self._reducer.on_fold)
        self._num_groups: int | Tensor | None = None
        self._attached, self._inside, self._complete = True, False, False

    @property
    def num_groups(self) -> int:
        """Groups of the last completed step over all workers (k); raises RuntimeError before the first."""
        if self._num_groups is None:
            raise RuntimeError("num_groups is known after the first micro_batch(last=True).")
        self._num_groups = int(self._num_groups)
        return self._num_groups

    @property
    def noise_scale(self) -> NoiseScale:
        """Gradient noise scale over the steps so far (arXiv 1812.06162, app. A); ConfigError without `group_size`."""
        if self._noise_scale is None:
            raise ConfigError("noise_scale needs the samples in one group: GradientMoments(model, group_size=...).")
        return self._noise_scale

    @property
    def bytes_sent(self) -> int:
        """Bytes this worker has handed to collectives since construction; 0 without DistributedDataParallel."""
        return self._reducer.bytes_sent

    @contextmanager
    def micro_batch(self, *, last: bool, group_end: bool = True, weight: float = 1.0) -> Iterator[None]:
        """Wrap forward and backward of one micro-batch: one group or, with `group_end=False`, a part of one.

        last: this is the worker's last micro-batch of the step; leaves `.grad` and `.grad_var` complete.
        weight: share of the part in its group (chunk size / group size); the weights of a group sum to 1.
        An exception inside discards the step. Raises ConfigError for fewer than 2 groups over all workers or weights
        that do not sum to 1, RuntimeError where backward was not called, contexts are nested, or after `detach`.
        """
        if not self._attached:
            raise RuntimeError("these moments were detached from their model; build new GradientMoments.")
        if self._inside:
            raise RuntimeError("micro_batch contexts cannot be nested.")
        self._inside = True
        try:
            self._check(last, group_end, weight)
            self._begin()
            with self._reducer.no_sync(), self._folding.chunk(Chunk(weight, group_end, last, self._inverse_scale)):
                yield
            if last:
                self._finish()
            else:
                self._expose_partial_sums()
        except BaseException:
            self._discard()
            raise
        finally:
            self._inside = False

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Clip `.grad` to the total 2-norm `max_norm`, and `.grad_var` by the square of the same factor.

        Returns the norm before clipping, 0-d, as `torch.nn.utils.clip_grad_norm_`. Raises RuntimeError unless a step
        was completed by `micro_batch(last=True)`.
        """
        if not self._complete:
            raise RuntimeError("clip_grad_norm_ needs a completed step: call it after micro_batch(last=True).")
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, max_norm)
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0).square()  # torch's own factor, squared
        for parameter in self._parameters:
            variance = getattr(parameter, GRAD_VAR, None)
            if variance is not None:
                variance.mul_(factor.to(variance.device))
        return norm

    def detach(self) -> None:
        """Remove all hooks and every `.grad_var` from the model, which is then as it was before."""
        self._attached = False
        self._remove_variances()
        self._folding.detach()

    def _check(self, last: bool, group_end: bool, weight: float) -> None:
        require(group_end or not last, "the last micro-batch of a step must end its group: group_end=True.")
        total = self._sums.weight + weight
        require(
            not group_end or abs(total - 1.0) <= WEIGHT_TOLERANCE,
            f"the weights of this group sum to {total}; they must sum to 1 (chunk size / group size each).",
        )
        require(
            not last or self._sums.num_groups + self._reducer.num_workers >= 2,
            "one group has no variance: at least 2 groups over all workers are needed in a step.",
        )

    def _begin(self) -> None:
        if self._sums.empty:
            self._begin_step()
        for parameter in self._parameters:
            parameter.grad = None  # so that backward hands over its own buffer instead of adding to an old one

    def _begin_step(self) -> None:
        self._complete = False
        self._remove_variances()
        self._reducer.begin_step()
        if self._grad_scaler is not None:
            # Scaling a one reads the scale without waiting for the device.
            self._loss_scale = self._grad_scaler.scale(torch.ones((), device=self._parameters[0].device))
            self._inverse_scale = self._loss_scale.reciprocal()

    def _expose_partial_sums(self) -> None:
        # A gradient without a variance: an optimizer that is stepped too early refuses it instead of doing nothing.
        for i, parameter in enumerate(self._parameters):
            _set_grad(parameter, self._sums.partial(i))

    def _finish(self) -> None:
        moments = self._reducer.finish()
        self._sums.clear()
        self._folding.first_step = False
        self._warn_if_few(moments.num_groups)
        self._num_groups = moments.num_groups
        self._update_noise_scale(moments)
        self._hand_over(moments)
        self._complete = True

    def _warn_if_few(self, num_groups: int | Tensor) -> None:
        if self._num_groups is None and (k := int(num_groups)) < MIN_GROUPS_WITHOUT_WARNING:
            warnings.warn(
                f"num_groups = {k}: below {MIN_GROUPS_WITHOUT_WARNING} groups the variance is mostly chance.",
                stacklevel=5,
            )

    def _update_noise_scale(self, moments: Moments) -> None:
        if self._noise_scale is None:
            return
        # Not torch's norm: on CPUs its float32 sum over a large tensor is off by up to 1 %.
        mean_norm_sq = _total(mean.square().sum() for mean in moments.means if mean is not None)
        variance_sum = _total(variance.sum() for variance in moments.variances if variance is not None)
        self._noise_scale.update(
            mean_norm_sq=mean_norm_sq, group_norm_sq=mean_norm_sq + variance_sum, num_groups=moments.num_groups
        )

    def _hand_over(self, moments: Moments) -> None:
        if self._loss_scale is not None:
            torch._foreach_mul_([mean for mean in moments.means if mean is not None], self._loss_scale)
        for parameter, mean, variance in zip(self._parameters, moments.means, moments.variances, strict=True):
            _set_grad(parameter, mean)
            if variance is not None:
                setattr(parameter, GRAD_VAR, cast(variance, moment_dtype(parameter)))

    def _discard(self) -> None:
        self._sums.clear()
        self._reducer.discard()
        self._remove_variances()
        for parameter in self._parameters:
            parameter.grad = None

    def _remove_variances(self) -> None:
        for parameter in self._parameters:
            if hasattr(parameter, GRAD_VAR):
                delattr(parameter, GRAD_VAR)


def _set_grad(parameter: nn.Parameter, value: Tensor | None) -> None:
    if value is not None:
        value = cast(value, getattr(parameter, "grad_dtype", None) or parameter.dtype)
    parameter.grad = value


def _total(values: Iterable[Tensor]) -> Tensor:
    """Sum of 0-d tensors on any devices in float64, 0-d, without waiting for the device."""
    first, *rest = values
    return torch.stack([first, *(value.to(first.device) for value in rest)]).double().sum()
