"""idleband hands out idle radio channels: restless, contextual, multi-play bandits, simulated fast.

scenario + policies -> experiment -> simulate -> results -> figures.
"""

from importlib.metadata import version

from idleband.allocator.allocator import Allocator
from idleband.allocator.events import Conflict, Decision, Receipt, Unknown
from idleband.allocator.explanation import Explanation
from idleband.errors import InputError
from idleband.experiments.study import Study, compare, load
from idleband.kernels.rng import beta, gamma, normal, uniform
from idleband.kernels.selection import top_m
from idleband.policies.base import AtLeast, OneOf
from idleband.policies.registry import POLICIES, policy, register
from idleband.scenario.build import scenario
from idleband.scenario.laws import register_law
from idleband.scenario.scenario import Scenario
from idleband.simulation.learned import Learned, learned, learned_chains
from idleband.simulation.simulate import Result, simulate

__version__ = version("idleband")

__all__ = [
    "POLICIES",
    "Allocator",
    "AtLeast",
    "Conflict",
    "Decision",
    "Explanation",
    "InputError",
    "Learned",
    "OneOf",
    "Receipt",
    "Result",
    "Scenario",
    "Study",
    "Unknown",
    "beta",
    "compare",
    "gamma",
    "learned",
    "learned_chains",
    "load",
    "normal",
    "policy",
    "register",
    "register_law",
    "scenario",
    "simulate",
    "top_m",
    "uniform",
]
