"""What all layer-wise optimizers share: options per group, checks before any change, the GSNR scale, the step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT, StateDict

from vrgd_ray.optim.batch_scale import BatchScale
from vrgd_ray.optim.blocks import Block, Scratch, batches, blocks, plain
from vrgd_ray.optim.checks import checked_gradient, checked_variance, consume, validate_options
from vrgd_ray.optim.gsnr import apply_control, gsnr_scale
from vrgd_ray.optim.kernels import NativeScale
from vrgd_ray.optim.layer import SCALE_AVERAGE, Group, Layer, State, newest_share, scaled
from vrgd_ray.optim.native import wanted
from vrgd_ray.optim.restoring import fit, refuse_foreign, saved_states, with_own_options
from vrgd_ray.optim.statistics import LayerScale, mean_scale, measure, step_ratio


class LayerOptimizer(torch.optim.Optimizer):
    """Optimizer that treats one parameter tensor ("layer") as a unit; subclasses add the update rule.

    Groups with bounds (1, 1), or without bounds, receive the mean gradient itself and never read a variance.
    A rule is written twice: `_update` for one layer, the definition, and `_update_block` for pieces of layers.
    """

    layerwise = False
    """Whether the rule needs norms of whole layers: its blocks share one buffer as large as the batch."""
    state_names = frozenset({"momentum_buffer"})
    """What the rule keeps of a parameter from step to step."""

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; every option can differ from the optimizer's own.

        Raises:
            ConfigError: an option is out of its range.
        """
        super().add_param_group(param_group)
        try:
            validate_options(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient; check them all before the first is changed.

        Raises:
            RuntimeError: a variance is missing or was used by an earlier step, or a gradient is sparse or complex.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = self._collect()
        for group, layers in work:
            consume(layer.variance for layer in layers)
            self._step_group(group, layers)
        return loss

    def layer_scales(self) -> list[LayerScale]:
        """What the scale did to each layer in the last step; layers without gradient or elements are left out.

        Computed from `.grad` and `.grad_var`, so it costs a step nothing: read it after `step` and before `zero_grad`.

        Raises:
            RuntimeError: there is no finished step, or its gradients are gone.
        """
        pairs: list[tuple[Tensor, Tensor | None]] = []
        for group, layers in self._collect(stale=True):
            measured = [layer for layer in layers if layer.param.numel()]
            pairs += [
                (layer.param, None if layer.variance is None else self._scale(group, layer)) for layer in measured
            ]
        if not pairs:
            raise RuntimeError("no gradients to measure the scale of; read it after step() and before zero_grad().")
        return measure(pairs)

    def mean_scale(self) -> float:
        """Mean of the scale over all elements in the last step, unit-free; when to read, see `layer_scales`."""
        return mean_scale(self.layer_scales())

    def step_ratio(self) -> float:
        """norm(s*m) / norm(m) of the last step over all layers, unit-free; when to read, see `layer_scales`."""
        return step_ratio(self.layer_scales())

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore options and state, the float32 state of half-precision parameters without rounding.

        The state may be that of the base optimizer, or of the VR one: what it lacks stays this optimizer's own.

        Raises:
            ConfigError: the state is that of other parameters, of another order or of another kind of optimizer;
                nothing has been changed.
        """
        saved = saved_states(state_dict, self.param_groups)
        refuse_foreign(saved, self.state_names, type(self).__name__)
        super().load_state_dict(with_own_options(state_dict, self.param_groups))
        for param, state in saved:
            fit(self.state[param], state, param)

    def _collect(self, *, stale: bool = False) -> list[tuple[Group, list[Layer]]]:
        index = count()
        return [(group, self._layers(group, index, stale)) for group in self.param_groups]

    def _layers(self, group: Group, index: count[int], stale: bool) -> list[Layer]:
        variance = partial(checked_variance, stale=stale) if scaled(group) else _no_variance
        return [
            Layer(param, checked_gradient(param), variance(param), self.state[param], place)
            for param, place in zip(group["params"], index, strict=False)
            if param.grad is not None
        ]

    def _step_group(self, group: Group, layers: list[Layer]) -> None:
        group["gsnr_step"] = group.get("gsnr_step", 0) + 1
        wide = scaled(group) or self.layerwise
        loop = group["foreach"] is False or group.get("gsnr_control") is not None
        fast = []
        for layer in layers:
            self._prepare(group, layer, layer.dtype(wide=wide))
            if not loop and plain(layer):
                fast.append(layer)
            else:
                self._step_layer(group, layer, layer.dtype(wide=wide))
        self._step_fast(group, fast)

    def _step_layer(self, group: Group, layer: Layer, dtype: torch.dtype) -> None:
        param = layer.param.to(dtype)
        self._update(group, param, self._gradient(group, layer).to(dtype), layer.state)
        if param is not layer.param:
            layer.param.copy_(param)

    def _gradient(self, group: Group, layer: Layer) -> Tensor:
        """Mean gradient times the scale, or its running mean; the mean gradient itself where the scale is off."""
        if layer.variance is None:
            return layer.grad
        scale, average = self._scale(group, layer), layer.state.get(SCALE_AVERAGE)
        if average is not None:
            scale = average.lerp_(scale.to(average.dtype), newest_share(group, layer))
        return scale * layer.grad

    def _scale(self, group: Group, layer: Layer) -> Tensor:
        assert layer.variance is not None
        scale = gsnr_scale(layer.grad, layer.variance, group["gsnr_bounds"])
        return apply_control(scale, group["gsnr_control"], (group["gsnr_seed"], group["gsnr_step"], layer.index))

    def _step_fast(self, group: Group, layers: list[Layer]) -> None:
        scratch, native = Scratch(), scaled(group) and wanted(layers)
        for batch in batches(layers):
            self._step_batch(group, batch, scratch, native)

    def _step_batch(self, group: Group, batch: list[Layer], scratch: Scratch, native: bool) -> None:
        whole, parts = blocks(batch, scratch, whole_buffer=self.layerwise)
        write = self._writer(group, parts, native and batch[0].param.device.type == "cpu")
        for block in parts:
            write(block)
            self._update_block(group, block)
        self._finish(group, whole)

    def _writer(self, group: Group, parts: list[Block], native: bool) -> Callable[[Block], None]:
        """How the gradient that the base rule works on gets into the buffer of a block."""
        batch = parts[0].layers
        if batch[0].variance is None:
            return _copy_mean
        if native:
            return NativeScale(batch, group["gsnr_bounds"]).write
        averages = [layer.state[SCALE_AVERAGE] for layer in batch if SCALE_AVERAGE in layer.state]
        share = newest_share(group, batch[0]) if averages else 1.0
        return BatchScale(parts, group["gsnr_bounds"], averages, share).write

    def _prepare(self, group: Group, layer: Layer, dtype: torch.dtype) -> None:
        """Create the state of a layer that is new."""

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        """Apply the base rule to one layer."""
        raise NotImplementedError

    def _update_block(self, group: Group, block: Block) -> None:
        """Apply the base rule to the gradient in the block's buffer, or turn it into the direction of the step."""

    def _finish(self, group: Group, whole: Block) -> None:
        """Apply what needs norms of whole layers, once their blocks are done."""


def _copy_mean(block: Block) -> None:
    block.buffer.copy_(block.mean)


def _no_variance(param: Tensor) -> None:
    return None
