"""A small model trained with GradientMoments; also runs as a program that resumes what a test saved."""

import sys

import torch
from torch import nn

from vrgd_ray import GradientMoments
from vrgd_ray.optim import VRLAMB, VRLARS, VRSGD, VRAdam, VRAdamW

KINDS = {
    VRSGD: {"lr": 0.1, "momentum": 0.9},
    VRAdam: {"lr": 0.02},
    VRAdamW: {"lr": 0.02},
    VRLARS: {"lr": 20.0},
    VRLAMB: {"lr": 0.05},
}
GROUPS, GROUP_SIZE = 8, 4


class Training:
    """Model, optimizer and moments, and the steps on data that depends on the step alone."""

    def __init__(self, kind, dtype=torch.float32, scaler=None):
        torch.manual_seed(0)
        self.dtype, self.scaler = dtype, scaler
        self.model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).to(dtype)
        self.optimizer = kind(self.model.parameters(), **KINDS[kind])
        self.moments = GradientMoments(self.model, group_size=GROUP_SIZE, grad_scaler=scaler)

    def micro_batch(self, step, group):
        """Forward and backward of one group; returns its loss."""
        x = torch.randn(GROUP_SIZE, 5, generator=torch.Generator().manual_seed(GROUPS * step + group)).to(self.dtype)
        with self.moments.micro_batch(last=group == GROUPS - 1):
            loss = nn.functional.mse_loss(self.model(x), x.sum(1, keepdim=True))
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss.item()

    def fill(self, step):
        """All groups of a step; returns their mean loss."""
        return sum(self.micro_batch(step, group) for group in range(GROUPS)) / GROUPS

    def run(self, steps):
        """Train; returns the loss of every step."""
        return [self._step(step) for step in steps]

    def _step(self, step):
        loss = self.fill(step)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()
        return loss

    def state_dict(self):
        """Everything a resumed training needs."""
        parts = {"model": self.model, "optimizer": self.optimizer, "noise_scale": self.moments.noise_scale}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_state_dict(self, state):
        """Continue from what `state_dict` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.moments.noise_scale.load_state_dict(state["noise_scale"])


def resume(source, target, start, end):
    """Load the state of one training per optimizer, go on, and save the states at the end."""
    trainings = {kind.__name__: Training(kind) for kind in KINDS}
    for name, state in torch.load(source, weights_only=True).items():
        trainings[name].load_state_dict(state)
        trainings[name].run(range(start, end))
    torch.save({name: training.state_dict() for name, training in trainings.items()}, target)


if __name__ == "__main__":
    torch.set_num_threads(1)
    resume(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
