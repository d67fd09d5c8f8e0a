"""Random draws for users' policies and perturbation models, from the stream that they receive, such as `slot.rng`.

Compiled and interpreted code draw the same numbers.
"""

from idleband.kernels.rng import beta, gamma, normal, uniform

__all__ = ["beta", "gamma", "normal", "uniform"]
