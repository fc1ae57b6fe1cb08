"""Mean and variance of the gradient over the groups of a batch, and the gradient noise scale."""

from vrgd_ray.gradients.moments import GradientMoments
from vrgd_ray.gradients.noise_scale import NoiseScale

__all__ = ["GradientMoments", "NoiseScale"]
