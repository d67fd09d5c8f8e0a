"""One policy on one sample path: the memory of a run, the compiled loop of a policy, and running it in segments."""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from idleband import own
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.rng import CONTEXTS, POLICY, STATES, stream
from idleband.policies.base import PARAMETERS, STATES_SEEN, Known, Policy, Truth
from idleband.policies.registry import Case
from idleband.scenario.laws import FAULT, OwnLaw
from idleband.scenario.markov import cumulative
from idleband.scenario.perturbation import Law
from idleband.scenario.reward import REWARDS
from idleband.scenario.scenario import Scenario
from idleband.scenario.worth import levels, padded, padded_transition
from idleband.simulation import loop
from idleband.simulation.loop import CURVES, REFERENCES, TIE, References, Tally, World

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SEGMENT = 0.1  # seconds a compiled loop runs before it returns, about: progress shows and Ctrl-C is seen

Tick = Callable[[int], None]  # called with the number of slots just run; raises to stop


def checkpoints(horizon: int) -> Ints:
    """20 a decade, rounded, the same whatever the horizon is, plus the horizon.

    >>> checkpoints(5)
    array([1, 2, 3, 4, 5])
    """
    powers = 10.0 ** (np.arange(20 * (len(str(horizon)) + 1)) / 20)
    marks = np.unique(np.round(powers).astype(np.int64))
    return np.append(marks[marks < horizon], horizon).astype(np.int64)


@lru_cache(maxsize=64)
def law_of(scenario: Scenario, seed: int, replication: int) -> tuple[Floats, Floats]:
    """theta and the mean rewards of a replication: the same for all policies on it, and some work to draw."""
    theta = scenario.theta(seed, replication)
    return theta, scenario.mean_rewards(theta)[0]


# --- memory ----------------------------------------------------------------------------------------------------------


def known_of(scenario: Scenario) -> Known:
    """What a policy may know of a scenario beforehand."""
    low, high = scenario.reward_range()
    h = padded(scenario.rewards, 0.0)
    return Known(
        K=scenario.K,
        M=scenario.users,
        d=scenario.dimension,
        low=low,
        high=high,
        span=max(1.0, high - low),
        h_span=max(1.0, float(np.ptp(np.concatenate(scenario.rewards)))),
        h=h,
        states=np.array([len(P) for P in scenario.transition]),
        good=padded(scenario.good, False),
        threshold=scenario.reward == "threshold",
        measured=scenario.feedback == "perturbation",
    )


def truth_of(scenario: Scenario, theta: Floats, means: Floats) -> Truth:
    """What an oracle is told of a scenario in one replication."""
    ends, chance, pay = levels(scenario, theta)
    return Truth(
        P=padded_transition(scenario),
        stationary=padded(scenario.laws, 0.0),
        mean=means,
        pay=pay,
        level_chance=chance,
        level_end=ends,
    )


def new_world(scenario: Scenario, seed: int, replication: int, theta: Floats) -> World:
    """The start of one sample path. The same for every policy, M and sensing mode."""
    K, d = scenario.K, scenario.dimension
    S = max(2, max(map(len, scenario.transition)))
    contexts = np.zeros(K * d)
    return World(
        state_rng=stream(seed, replication, STATES),
        context_rng=stream(seed, replication, CONTEXTS),
        start=np.array([cumulative(law[None, :].repeat(len(law), 0), S)[0] for law in scenario.laws]),
        limits=np.array([cumulative(P, S) for P in scenario.transition]),
        h=padded(scenario.rewards, 0.0),
        good=padded(scenario.good, False),
        mean_h=scenario.mean_h,
        good_share=scenario.good_shares,
        available=scenario.available,
        reward=REWARDS.index(scenario.reward),
        law=scenario.perturbation.law.number,
        theta=theta,
        u=np.zeros(K),
        s=np.zeros(K, np.int64),
        contexts=contexts,
        x=contexts.reshape(K, d),
        n=np.zeros(K),
        fault=np.zeros(FAULT),
        expected=np.zeros(K),
        rewards=np.zeros(K),
        scratch=np.zeros(2 * K),
    )


def new_tally(scenario: Scenario, world: World, means: Floats, horizon: int, knows: frozenset[str]) -> Tally:
    K, M = scenario.K, scenario.users
    t = checkpoints(horizon)
    return Tally(
        t=t,
        curves=np.zeros((len(CURVES), len(t))),
        now=np.zeros(len(CURVES)),
        carry=np.zeros(2),
        cursor=np.zeros(1, np.int64),
        plays=np.zeros(K, np.int64),
        last_pick=np.zeros(K, np.int64),
        picks=np.zeros(K, np.int64),
        picked=np.zeros(1, np.int64),
        static_worse=np.array([means < min(_largest(means, row, M), default=-np.inf) - TIE for row in world.available]),
        table_mean=scenario.table_means,
        table_best=np.array([_largest(scenario.table_means, row, M).sum() for row in world.available]),
        sensing=scenario.sensing == "all" or STATES_SEEN in knows,
        hidden=np.full(K, -1, np.int64),
        told=PARAMETERS in knows,
        untold=np.full(K, np.nan),
        indices=np.zeros(K),
        scratch=np.zeros(2 * K),
    )


def new_references(scenario: Scenario, world: World, means: Floats, horizon: int) -> References:
    t = checkpoints(horizon)
    return References(
        t=t,
        curves=np.zeros((len(REFERENCES), len(t))),
        now=np.zeros(len(REFERENCES)),
        carry=np.zeros(len(REFERENCES)),
        cursor=np.zeros(1, np.int64),
        static_slot=np.array([_largest(means, row, scenario.users).sum() for row in world.available]),
    )


def _largest(means: Floats, available: npt.NDArray[np.bool_], M: int) -> Floats:
    """The M largest means of the available channels (all of them, if fewer are), largest first."""
    return np.sort(means[available])[::-1][:M]


# --- the compiled loop of a policy -----------------------------------------------------------------------------------


class Engine(NamedTuple):
    run: Callable[..., int]  # loop.run with the policy's functions bound
    compiled: bool
    reason: str  # why it is not compiled, if it is not


class Setting(NamedTuple):
    """What a law binds into the loops: nothing, unless it is a user's own."""

    bindings: dict[str, Any]
    name: str = ""  # what the name of the machine code must say of it
    cacheable: bool = True
    allocates: bool = False


@cache
def setting(law: Law) -> Setting:
    if not isinstance(law, OwnLaw):
        return Setting({})
    perturb, allocates = law.kernel.within, law.kernel.allocates
    advance = compile.bind(loop.advance, {"perturb": perturb}, allocates=allocates)
    return Setting({"advance": advance}, law.key, law.cacheable, allocates)


_engines: dict[str, Engine] = {}
_compiling = Lock()


def engine(policy: Policy, law: Law, memory: Callable[[], tuple[Any, ...]]) -> Engine:
    """The loop for a policy under a law, compiled if it can be. It is tried, with no slot, on memory of its own."""
    name = name_for("run", policy, setting(law).name)
    if name not in _engines:  # asked twice: what is there does not wait for what is being compiled
        with _compiling:
            if name not in _engines:
                functions = {"select": policy.select, "update": policy.update}
                _engines[name] = build(loop.run, name, policy, functions, setting(law), (*memory(), 0, 0))
    return _engines[name]


def name_for(kernel: str, policy: Policy, more: str) -> str:
    """The name under which the machine code is kept: the module that holds the functions (names like mp-lucb and
    mp-lucb-rca share them), and for a user's policy, of which a module may hold several, all that identifies it."""
    whose = "" if policy.source is None else hashlib.sha256(f"{policy.name}\0{policy.source}".encode()).hexdigest()[:16]
    return re.sub(r"\W", "_", f"{kernel}_{policy.select.__module__}_{whose}_{more}")


def build(
    kernel: Callable[..., Any],
    name: str,
    policy: Policy,
    functions: dict[str, Callable[..., Any]],
    world: Setting,
    trial: tuple[Any, ...],
) -> Engine:
    """A kernel with functions of a policy bound, and what the setting binds: compiled, if calling it with `trial`,
    which makes it do nothing, shows that it can be."""
    if policy.source is None:
        run = compile.specialise(
            kernel, name, functions | world.bindings, cached=world.cacheable, allocates=world.allocates
        )
        compile.call(run, *trial)
        return Engine(run, True, "")
    plain = {key: getattr(f, "py_func", f) for key, f in functions.items()}
    cached = policy.cacheable and world.cacheable
    for allocates in (True,) if world.allocates else (False, True):
        try:
            jitted = {key: compile.jit(f, allocates=allocates) for key, f in plain.items()} | world.bindings
            own_name = name + "_allocates" * allocates
            run = compile.specialise(kernel, own_name, jitted, cached=cached, allocates=allocates)
            compile.call(run, *trial)
            return Engine(run, True, "")
        except Exception as error:  # with nothing done, it can only be the compiler's
            reason = compile.reason(error)
    return Engine(compile.interpreted(kernel, name, plain | world.bindings), False, reason)


@cache
def _walker(law: Law) -> Callable[..., None]:
    """The compiled walk along the references."""
    bindings, name, cacheable, allocates = setting(law)
    walk: Callable[..., None] = compile.specialise(
        loop.walk, f"walk_{name}", bindings, cached=cacheable, allocates=allocates
    )
    return walk


@contextlib.contextmanager
def named(policy: Policy) -> Iterator[None]:
    """Whatever a user's own policy raises is told in one line, with its place."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if policy.source is None:
            raise
        raise own.told(f"policy {policy.name}", error) from error


@contextlib.contextmanager
def _named_law(law: Law, *, alone: bool) -> Iterator[None]:
    """The same for a law, which may run alone or beside a user's own policy."""
    try:
        yield
    except Exception as error:
        if isinstance(law, OwnLaw) and (alone or own.passed(error, law.value)):
            raise own.told(f"law {law.name}: value", error) from error
        raise


def check_law(law: Law, fault: Floats) -> None:
    """Tell the first value of a user's own law that was none, if there was one."""
    if isinstance(law, OwnLaw) and fault[1]:
        raise law.faulty(fault[3], f"in slot {fault[1]:.0f}, channel {fault[2] + 1:.0f}")


# --- running ---------------------------------------------------------------------------------------------------------


@dataclass
class CaseRun:
    """A policy on one path, slot by slot or in segments."""

    scenario: Scenario
    case: Case
    known: Known
    params: Any
    world: World
    tally: Tally
    state: Any
    engine: Engine
    rng: npt.NDArray[np.uint64]
    at: int = 0  # slots run so far

    @classmethod
    def start(cls, scenario: Scenario, case: Case, horizon: int, seed: int, replication: int) -> "CaseRun":
        known = known_of(scenario)
        theta, means = law_of(scenario, seed, replication)
        params = case.policy.compiled_params(case.values)

        def memory() -> tuple[Any, ...]:
            world = new_world(scenario, seed, replication, theta)
            tally = new_tally(scenario, world, means, horizon, case.policy.knows)
            told = (truth_of(scenario, theta, means),) if PARAMETERS in case.policy.knows else ()
            with named(case.policy):
                state = case.policy.init(params, known, *told)
            return known, world, params, state, stream(seed, replication, POLICY), tally

        ready = engine(case.policy, scenario.perturbation.law, memory)
        _, world, _, state, rng, tally = memory()
        return cls(scenario, case, known, params, world, tally, state, ready, rng)

    def to(self, slot: int) -> None:
        """Run up to and including a slot."""
        arguments = (self.known, self.world, self.params, self.state, self.rng, self.tally, self.at, slot)
        law, policy = self.scenario.perturbation.law, self.case.policy
        with named(policy), _named_law(law, alone=policy.source is None):
            broken = self.engine.run(*arguments)
        check_law(law, self.world.fault)
        if broken:
            picks = [int(k) for k in self.tally.picks[: self.tally.picked[0]]]
            raise InputError(
                f"policy {self.case.policy.name}: picks = {picks} in slot {broken}; must be {self.scenario.users}"
                f" different available channels of 0 to {self.scenario.K - 1} (all of them, if fewer are available)"
            )
        self.at = slot


@dataclass
class ReferenceRun:
    """The references along one path."""

    law: Law
    known: Known
    world: World
    references: References
    at: int = 0

    @classmethod
    def start(cls, scenario: Scenario, horizon: int, seed: int, replication: int) -> "ReferenceRun":
        theta, means = law_of(scenario, seed, replication)
        world = new_world(scenario, seed, replication, theta)
        references = new_references(scenario, world, means, horizon)
        return cls(scenario.perturbation.law, known_of(scenario), world, references)

    def to(self, slot: int) -> None:
        with _named_law(self.law, alone=True):
            compile.call(_walker(self.law), self.known, self.world, self.references, self.at, slot)
        check_law(self.law, self.world.fault)
        self.at = slot


def in_segments(run: CaseRun | ReferenceRun, horizon: int, tick: Tick) -> None:
    """Run to the horizon in segments of about SEGMENT seconds, and tell `tick` after each."""
    slots = 16
    while run.at < horizon:
        began = time.perf_counter()
        step = min(slots, horizon - run.at)
        run.to(run.at + step)
        tick(step)
        seconds = time.perf_counter() - began
        slots = max(1, int(slots * min(8.0, SEGMENT / max(seconds, 1e-6))))
