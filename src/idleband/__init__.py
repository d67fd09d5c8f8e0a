"""idleband hands out idle radio channels: restless, contextual, multi-play bandits, simulated fast.

scenario + policies -> experiment -> simulate -> results -> figures.
"""

from importlib.metadata import version

from idleband import policies, random
from idleband.allocator.allocator import Allocator
from idleband.allocator.events import Decision, Receipt
from idleband.allocator.explanation import Explanation
from idleband.errors import (
    CompilationWarning,
    ConflictError,
    IdlebandError,
    InputError,
    PolicyBusyError,
    StorageError,
    UnknownRequestError,
)
from idleband.experiments.compare import compare, load
from idleband.experiments.study import Study
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast, OneOf
from idleband.policies.registry import POLICIES, ConfiguredPolicy, grid, policy, register
from idleband.scenario.build import scenario
from idleband.scenario.scenario import Scenario
from idleband.scenario.user_models import register_perturbation
from idleband.simulation.prediction_error import Learned, learned, learned_chains
from idleband.simulation.result import Result
from idleband.simulation.simulate import simulate

__version__ = version("idleband")

__all__ = [
    "POLICIES",
    "Allocator",
    "AtLeast",
    "CompilationWarning",
    "ConfiguredPolicy",
    "ConflictError",
    "Decision",
    "Explanation",
    "IdlebandError",
    "InputError",
    "Learned",
    "OneOf",
    "PolicyBusyError",
    "Receipt",
    "Result",
    "Scenario",
    "StorageError",
    "Study",
    "UnknownRequestError",
    "compare",
    "grid",
    "learned",
    "learned_chains",
    "load",
    "policies",
    "policy",
    "random",
    "register",
    "register_perturbation",
    "scenario",
    "simulate",
    "top_m",
]
