"""Optimizers that scale gradients by their signal-to-noise ratio, and their bases; pure torch.

Each is an ordinary `torch.optim.Optimizer`. The VR optimizers read the variance that `GradientMoments` leaves in
`.grad_var` beside the mean in `.grad`.
"""

from vrgd_ray.optim.groups import parameter_groups
from vrgd_ray.optim.gsnr import gsnr_scale
from vrgd_ray.optim.lamb import LAMB
from vrgd_ray.optim.lars import LARS
from vrgd_ray.optim.registry import create_optimizer
from vrgd_ray.optim.vr_adam import VRAdam
from vrgd_ray.optim.vr_adamw import VRAdamW
from vrgd_ray.optim.vr_lamb import VRLAMB
from vrgd_ray.optim.vr_lars import VRLARS
from vrgd_ray.optim.vr_sgd import VRSGD

__all__ = [
    "LAMB",
    "LARS",
    "VRLAMB",
    "VRLARS",
    "VRSGD",
    "VRAdam",
    "VRAdamW",
    "create_optimizer",
    "gsnr_scale",
    "parameter_groups",
]
