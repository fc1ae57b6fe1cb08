"""Every update rule written down element by element in plain Python numbers: slow, and meant to be checked by eye."""

import math
import sys

TOLERANCE = 8 * sys.float_info.epsilon


def scale(mean, var, lower, upper):
    """Scale of one layer, given as lists of numbers."""
    ordinary = [m * m / v for m, v in zip(mean, var, strict=True) if v > TOLERANCE * (m * m + v)]
    average = sum(ordinary) / len(ordinary) if ordinary else 0.0

    def one(m, v):
        if m == 0 and v == 0:
            relative = 1.0
        elif v <= TOLERANCE * (m * m + v):
            return upper
        else:
            relative = m * m / v / average if average else 1.0
        return min(max(relative, lower), upper)

    return [one(m, v) for m, v in zip(mean, var, strict=True)]


def norm(values):
    """Euclidean norm."""
    return math.sqrt(sum(value * value for value in values))


class NaiveOptimizer:
    """One layer, given as a list of numbers, under the rule `name` ("vr_sgd", "vr_adamw", ...)."""

    def __init__(self, name, theta, *, lr, weight_decay=0.0, gsnr_bounds=(0.1, 1.0), **options):
        self.rule = getattr(self, name)
        self.theta = list(theta)
        self.lr, self.weight_decay, self.bounds, self.options = lr, weight_decay, gsnr_bounds, options
        self.t = 0
        self.buffer = None
        self.scale_average = [0.0] * len(theta)
        self.first = [0.0] * len(theta)
        self.second = [0.0] * len(theta)

    def step(self, mean, var):
        """Update `theta` with the mean and the variance of the gradient."""
        self.t += 1
        off = self.bounds == (1.0, 1.0)
        self.rule(mean, [1.0] * len(mean) if off else scale(mean, var, *self.bounds))

    def vr_sgd(self, mean, s):
        self._momentum([si * m + self.weight_decay * x for si, m, x in zip(s, mean, self.theta, strict=True)])

    def vr_lars(self, mean, s):
        scaled = [si * m for si, m in zip(s, mean, strict=True)]
        weights, gradient = norm(self.theta), norm(scaled)
        denominator = gradient + self.weight_decay * weights + self.options["eps"]
        ratio = self.options["trust_coefficient"] * weights / denominator if weights and gradient else 1.0
        self._momentum([ratio * (g + self.weight_decay * x) for g, x in zip(scaled, self.theta, strict=True)])

    def vr_adam(self, mean, s):
        decayed = [self.weight_decay * x for x in self.theta]
        direction = self._adam([g + d for g, d in zip(self._smoothed(mean, s), decayed, strict=True)])
        self._move(direction, self.lr)

    def vr_adamw(self, mean, s):
        self._move(self._decayed_direction(mean, s), self.lr)

    def vr_lamb(self, mean, s):
        direction = self._decayed_direction(mean, s)
        weights, length = norm(self.theta), norm(direction)
        self._move(direction, self.lr * (weights / length if weights and length else 1.0))

    def _decayed_direction(self, mean, s):
        direction = self._adam(self._smoothed(mean, s))
        return [u + self.weight_decay * x for u, x in zip(direction, self.theta, strict=True)]

    def _smoothed(self, mean, s):
        b3 = self.options["betas"][2]
        self.scale_average = [b3 * p + (1 - b3) * si for p, si in zip(self.scale_average, s, strict=True)]
        return [p / (1 - b3**self.t) * m for p, m in zip(self.scale_average, mean, strict=True)]

    def _adam(self, gradient):
        b1, b2 = self.options["betas"][:2]
        self.first = [b1 * a + (1 - b1) * g for a, g in zip(self.first, gradient, strict=True)]
        self.second = [b2 * a + (1 - b2) * g * g for a, g in zip(self.second, gradient, strict=True)]
        eps = self.options["eps"]
        return [
            a / (1 - b1**self.t) / (math.sqrt(b / (1 - b2**self.t)) + eps)
            for a, b in zip(self.first, self.second, strict=True)
        ]

    def _momentum(self, direction):
        mu = self.options["momentum"]
        if self.buffer is None:
            self.buffer = direction
        else:
            self.buffer = [mu * b + d for b, d in zip(self.buffer, direction, strict=True)]
        if self.options.get("nesterov"):
            self._move([d + mu * b for d, b in zip(direction, self.buffer, strict=True)], self.lr)
        else:
            self._move(self.buffer, self.lr)

    def _move(self, direction, length):
        self.theta = [x - length * d for x, d in zip(self.theta, direction, strict=True)]
