"""Run one policy, or the references, along one sample path, slot by slot or in segments."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Protocol

import numpy as np

from idleband import user_code
from idleband.arrays import Floats, Ints, Words
from idleband.binding import Bindings, Kernel, bind_policy, check_compiled, kernel_name, policy_errors
from idleband.channels import channel_text
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.rng import POLICY, streams
from idleband.policies.knowledge import setup_of, truth_of
from idleband.policies.protocol import PARAMETERS, Policy, Setup
from idleband.policies.registry import ConfiguredPolicy
from idleband.policies.state_template import copied, state_maker
from idleband.scenario.perturbation import PerturbationModel
from idleband.scenario.scenario import Scenario
from idleband.scenario.user_models import UserModel
from idleband.simulation import environment, loop
from idleband.simulation.environment import SamplePath
from idleband.simulation.loop import References, Tally
from idleband.simulation.path import best_fixed, new_path, new_references, new_tally, path_parameters
from idleband.simulation.presence import Presence

SEGMENT = 0.1  # seconds, about, that a compiled loop runs before it returns, so that progress and Ctrl-C are seen
FIRST_SEGMENT = 16  # slots, of a loop whose speed is not known


# --- compiled loops --------------------------------------------------------------------------------------------------


@cache
def model_bindings(model: PerturbationModel) -> Bindings:
    """Return what a perturbation model binds into the loops: nothing, unless it is a user's model."""
    if not isinstance(model, UserModel):
        return Bindings({})
    perturb, allocates = model.kernel.within, model.kernel.allocates
    advance = compile.bind(environment.advance, {"perturb": perturb}, allocates=allocates)
    return Bindings({"advance": advance}, model.key, model.cacheable, allocates)


_loops: dict[str, Kernel] = {}
_compiling = Lock()


def policy_loop(policy: Policy, model: PerturbationModel, memory: Callable[[], tuple[Any, ...]]) -> Kernel:
    """Return the loop for a policy under a perturbation model, compiled if possible.

    `memory` returns new arguments of the loop, on which it is tried without running a slot.
    """
    bindings = model_bindings(model)
    name = kernel_name("run", policy, bindings.name)
    if name not in _loops:  # checked twice: a loop that is ready does not wait for one that is being compiled
        with _compiling:
            if name not in _loops:
                functions = {"select": policy.select, "update": policy.update}
                _loops[name] = bind_policy(loop.run, name, policy, functions, bindings, (*memory(), 0, 0))
    return check_compiled(policy, _loops[name])


@cache
def _references_loop(model: PerturbationModel) -> Callable[..., int]:
    """Return the compiled loop of the references."""
    bindings, name, cacheable, allocates = model_bindings(model)
    run: Callable[..., int] = compile.specialise(
        loop.run_references, f"run_references_{name}", bindings, cached=cacheable, allocates=allocates
    )
    return run


@contextlib.contextmanager
def named_model(model: PerturbationModel, *, alone: bool) -> Iterator[None]:
    """Report what a user's perturbation model raises in one line; it may run alone or beside a user's policy."""
    try:
        yield
    except Exception as error:
        if isinstance(model, UserModel) and (alone or user_code.passed(error, model.value)):
            raise user_code.as_input_error(f"perturbation model {model.name}: value", error) from error
        raise


def check_model(scenario: Scenario, fault: Floats) -> None:
    """Raise InputError if a user's perturbation model has returned a value that is not finite or out of bounds."""
    model = scenario.perturbation.model
    if isinstance(model, UserModel) and fault[1]:
        raise model.faulty(fault[3], f"in slot {fault[1]:.0f}, {channel_text(int(fault[2]), scenario.channel_names)}")


def invalid_picks(scenario: Scenario, policy: Policy, M: int, picks: Ints, slot: int) -> InputError:
    """Return the error for a policy that selected invalid channels in a slot."""
    return InputError(
        f"policy {policy.name}: picks = {picks.tolist()} in slot {slot}; must be {M} different available channels of 0"
        f" to {scenario.K - 1} (all of them, if fewer are available)"
    )


def policy_memory(
    scenario: Scenario, configured: ConfiguredPolicy, horizon: int, seed: int, replication: int
) -> Callable[[], tuple[Any, ...]]:
    """Return a function that returns the memory of the loop of a policy before the first slot."""
    policy = configured.policy
    setup = setup_of(scenario, configured.params)
    if policy.source is not None:  # a user's policy might write into it
        setup = copied(setup)
    theta, means = path_parameters(scenario, seed, replication)

    def memory() -> tuple[Any, ...]:
        path = new_path(scenario, seed, replication, theta)
        tally = new_tally(scenario, path, means, horizon, policy.knows)
        rng = streams(seed, replication)[POLICY]
        if PARAMETERS in policy.knows:
            return setup, path, policy.init(setup, truth_of(scenario, theta, means)), rng, tally
        if policy.source is None:
            return setup, path, state_maker(scenario, policy.init, setup.params)(), rng, tally
        with policy_errors(policy):
            return setup, path, policy.init(setup), rng, tally

    return memory


# --- running ---------------------------------------------------------------------------------------------------------


@dataclass
class PolicyRun:
    """One policy on one sample path."""

    scenario: Scenario
    configured: ConfiguredPolicy
    setup: Setup
    path: SamplePath
    tally: Tally
    state: Any
    kernel: Kernel
    rng: Words
    means: Floats  # mean reward of each channel
    presence: Presence
    at: int = 0  # slots run so far

    @classmethod
    def start(
        cls, scenario: Scenario, configured: ConfiguredPolicy, horizon: int, seed: int, replication: int
    ) -> "PolicyRun":
        memory = policy_memory(scenario, configured, horizon, seed, replication)
        kernel = policy_loop(configured.policy, scenario.perturbation.model, memory)
        setup, path, state, rng, tally = memory()
        means = path_parameters(scenario, seed, replication)[1]
        presence = Presence(scenario, seed, replication, horizon)
        return cls(scenario, configured, setup, path, tally, state, kernel, rng, means, presence)

    def to(self, slot: int) -> None:
        """Run up to and including a slot."""
        for changes, end in self.presence.stretches(self.at, slot):
            if changes:  # of users without a base station, for whom this policy stands as the coordinated reference
                present = self.presence.present
                self.setup = self.setup._replace(M=int(present.sum()))
                self.tally = self.tally._replace(
                    table_best=best_fixed(self.scenario, self.scenario.table_means, present)[0],
                    static_worse=best_fixed(self.scenario, self.means, present)[1],
                )
            self._run(end)

    def _run(self, slot: int) -> None:
        arguments = (self.setup, self.path, self.state, self.rng, self.tally, self.at, slot)
        model, policy = self.scenario.perturbation.model, self.configured.policy
        with policy_errors(policy), named_model(model, alone=policy.source is None):
            broken = self.kernel.run(*arguments)
        check_model(self.scenario, self.path.fault)
        if broken:
            picks = self.tally.picks[: self.tally.picked[0]]
            raise invalid_picks(self.scenario, policy, self.setup.M, picks, broken)
        self.at = slot


@dataclass
class ReferenceRun:
    """The references along one sample path."""

    scenario: Scenario
    path: SamplePath
    references: References
    means: Floats
    presence: Presence
    at: int = 0

    @classmethod
    def start(cls, scenario: Scenario, horizon: int, seed: int, replication: int) -> "ReferenceRun":
        theta, means = path_parameters(scenario, seed, replication)
        path = new_path(scenario, seed, replication, theta)
        references = new_references(scenario, path, means, horizon)
        if scenario.uncoordinated is not None and scenario.uncoordinated.quality is not None:
            references.now[1:] = np.nan  # the best assignment of each slot is not computed
        return cls(scenario, path, references, means, Presence(scenario, seed, replication, horizon))

    def to(self, slot: int) -> None:
        """Run up to and including a slot."""
        for changes, end in self.presence.stretches(self.at, slot):
            if changes:
                present = self.presence.present
                best = best_fixed(self.scenario, self.means, present)[0]
                self.references = self.references._replace(M=int(present.sum()), static_slot=best)
            self._run(end)

    def _run(self, slot: int) -> None:
        model = self.scenario.perturbation.model
        with named_model(model, alone=True):
            compile.call(_references_loop(model), self.path, self.references, self.at, slot)
        check_model(self.scenario, self.path.fault)
        self.at = slot


class Run(Protocol):
    """A run that goes on to a given slot."""

    at: int

    def to(self, slot: int) -> None:
        """Run up to and including a slot."""


def in_segments(run: Run, horizon: int, advance: Callable[[int], None], slots: int = FIRST_SEGMENT) -> int:
    """Run to the horizon in segments of about SEGMENT seconds; call `advance` with the slots of each.

    `slots` are those of the first segment. Return with how many another run of the same policy on the same scenario may
    begin: those of a quarter of SEGMENT.
    """
    while run.at < horizon:
        began = time.perf_counter()
        step = min(slots, horizon - run.at)
        run.to(run.at + step)
        advance(step)
        seconds = time.perf_counter() - began
        slots = max(1, int(step * min(8.0, SEGMENT / max(seconds, 1e-6))))
    return max(FIRST_SEGMENT, slots // 4)
