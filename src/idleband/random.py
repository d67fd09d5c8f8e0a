"""Random draws for policies and perturbation models, from the stream that they are given (`slot.rng`).

They run compiled and interpreted alike, and give the same numbers in both.
"""

from idleband.kernels.rng import beta, gamma, normal, uniform

__all__ = ["beta", "gamma", "normal", "uniform"]
