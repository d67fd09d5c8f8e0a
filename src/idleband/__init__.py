"""Assign idle radio channels: restless, contextual, multi-play bandits, simulated and live.

scenario + policies -> experiment -> simulate -> results -> figures, and `Allocator` for one slot at a time.

Names are imported at their first use, so that a command which needs only some of them starts quickly.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from idleband import policies, random
from idleband.environments.registration import register_environments
from idleband.errors import (
    ClusterError,
    CompilationWarning,
    ConflictError,
    IdlebandError,
    InputError,
    PolicyBusyError,
    StorageError,
    UnknownRequestError,
)
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast, OneOf
from idleband.policies.registry import POLICIES, ConfiguredPolicy, grid, policy, register
from idleband.scenario.build import scenario  # not at first use: the package of the same name would hide it
from idleband.scenario.scenario import Scenario
from idleband.scenario.user_models import register_perturbation

if TYPE_CHECKING:
    from idleband.advice.advise import Advice, advise
    from idleband.allocator.allocator import Allocator
    from idleband.allocator.events import Decision, Receipt, StepResult
    from idleband.allocator.explanation import Explanation
    from idleband.environments.environment import Environment, Observation, Step
    from idleband.environments.users_environment import UsersEnvironment, UsersObservation, UsersStep
    from idleband.evaluation.estimates import Estimate
    from idleband.evaluation.evaluate import Evaluation, PolicyValue, evaluate
    from idleband.experiments.compare import compare, load
    from idleband.experiments.study import Study
    from idleband.scenario.optimum import Optimum, optimum
    from idleband.simulation.prediction_error import Learned, learned, learned_chains
    from idleband.simulation.result import Result
    from idleband.simulation.simulate import simulate
    from idleband.trace.trace import Trace

    __version__: str

# Module of each name that is imported at its first use; the same as above.
_MODULES = {
    "Advice": "idleband.advice.advise",
    "Allocator": "idleband.allocator.allocator",
    "Decision": "idleband.allocator.events",
    "Environment": "idleband.environments.environment",
    "Estimate": "idleband.evaluation.estimates",
    "Evaluation": "idleband.evaluation.evaluate",
    "Explanation": "idleband.allocator.explanation",
    "Learned": "idleband.simulation.prediction_error",
    "Observation": "idleband.environments.environment",
    "Optimum": "idleband.scenario.optimum",
    "PolicyValue": "idleband.evaluation.evaluate",
    "Receipt": "idleband.allocator.events",
    "Result": "idleband.simulation.result",
    "Step": "idleband.environments.environment",
    "StepResult": "idleband.allocator.events",
    "Study": "idleband.experiments.study",
    "Trace": "idleband.trace.trace",
    "UsersEnvironment": "idleband.environments.users_environment",
    "UsersObservation": "idleband.environments.users_environment",
    "UsersStep": "idleband.environments.users_environment",
    "advise": "idleband.advice.advise",
    "compare": "idleband.experiments.compare",
    "evaluate": "idleband.evaluation.evaluate",
    "learned": "idleband.simulation.prediction_error",
    "learned_chains": "idleband.simulation.prediction_error",
    "load": "idleband.experiments.compare",
    "optimum": "idleband.scenario.optimum",
    "simulate": "idleband.simulation.simulate",
}

__all__ = [
    "POLICIES",
    "Advice",
    "Allocator",
    "AtLeast",
    "ClusterError",
    "CompilationWarning",
    "ConfiguredPolicy",
    "ConflictError",
    "Decision",
    "Environment",
    "Estimate",
    "Evaluation",
    "Explanation",
    "IdlebandError",
    "InputError",
    "Learned",
    "Observation",
    "OneOf",
    "Optimum",
    "PolicyBusyError",
    "PolicyValue",
    "Receipt",
    "Result",
    "Scenario",
    "Step",
    "StepResult",
    "StorageError",
    "Study",
    "Trace",
    "UnknownRequestError",
    "UsersEnvironment",
    "UsersObservation",
    "UsersStep",
    "advise",
    "compare",
    "evaluate",
    "grid",
    "learned",
    "learned_chains",
    "load",
    "optimum",
    "policies",
    "policy",
    "random",
    "register",
    "register_perturbation",
    "scenario",
    "simulate",
    "top_m",
]

register_environments()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("idleband")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        message = f"module 'idleband' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])  # Python then suggests a similar name
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__"})
