"""Run users who choose channels themselves along one sample path, slot by slot or in segments."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.binding import Kernel, bind_policy, check_compiled, kernel_name, policy_errors
from idleband.errors import InputError, counted
from idleband.kernels import rng
from idleband.kernels.compile import INTERPRETED
from idleband.kernels.packed_state import PackedState, pack, unpacked
from idleband.policies.knowledge import setup_of, setup_of_user
from idleband.policies.protocol import ALL_AVAILABLE, COLLISIONS_SEEN, CONTROL_BITS, OWN_STATES_SEEN, Policy, Setup
from idleband.policies.registry import ConfiguredPolicy
from idleband.policies.state_template import copied
from idleband.scenario.perturbation import PerturbationModel
from idleband.scenario.scenario import Scenario
from idleband.scenario.uncoordinated import COLLISION, COLLISIONS, OBSERVES, REWARDS, SENSING, UncoordinatedUsers
from idleband.simulation import users_loop
from idleband.simulation.environment import SamplePath
from idleband.simulation.path import best_fixed, kept_checkpoints, new_path, path_parameters
from idleband.simulation.presence import Presence
from idleband.simulation.run import PolicyRun, check_model, model_bindings, named_model
from idleband.simulation.users_loop import TOO_MANY_BITS, USER_CURVES, UsersTally


def check_coordination(scenario: Scenario, policy: Policy) -> None:
    """Raise InputError if a policy needs a base station and there is none, or the other way round."""
    given = scenario.uncoordinated
    if policy.decentralised and given is None:
        raise InputError(
            f"policy {policy.name}: is for users without a base station, which scenario {scenario.name} has; set"
            ' scenario.users = {coordination = "none"}'
        )
    if policy.decentralised and given is not None:
        _check_observations(policy, given)
        if ALL_AVAILABLE in policy.knows and not scenario.available.all(axis=1).any():
            raise InputError(
                f"scenario.availability: policy {policy.name} needs at least one row in which all channels are"
                " available"
            )
    if not policy.decentralised and given is not None and given.quality is not None:
        raise InputError(
            f"policy {policy.name}: selects channels for all users alike; with scenario.users.quality only"
            " decentralised policies can run"
        )


def _check_observations(policy: Policy, given: UncoordinatedUsers) -> None:
    """Raise InputError if the policy of a user needs what users do not observe, or cannot send."""
    if OWN_STATES_SEEN in policy.knows and given.observes != OBSERVES[SENSING]:
        allowed = repr(OBSERVES[SENSING])
        raise InputError(f"scenario.users.observes = {given.observes!r}: policy {policy.name} needs {allowed}")
    if COLLISIONS_SEEN in policy.knows and given.observes == OBSERVES[REWARDS]:
        allowed = f"{OBSERVES[SENSING]!r} or {OBSERVES[COLLISIONS]!r}"
        raise InputError(f"scenario.users.observes = {given.observes!r}: policy {policy.name} needs {allowed}")
    if CONTROL_BITS in policy.knows and given.control_bits == 0:
        raise InputError(f"scenario.users.control_bits = 0: policy {policy.name} needs at least 1")


def setup_for(scenario: Scenario, configured: ConfiguredPolicy, horizon: int) -> Setup:
    """Return the setup of a policy that selects for all users, or of one that does for a single user."""
    if configured.policy.decentralised:
        return setup_of_user(scenario, configured.params, configured.policy.knows, horizon)
    return setup_of(scenario, configured.params)


def start_run(
    scenario: Scenario, configured: ConfiguredPolicy, horizon: int, seed: int, replication: int
) -> "PolicyRun | UsersRun":
    """Return a policy at the start of a sample path, as the base station selects or for each user by itself."""
    kind = UsersRun if configured.policy.decentralised else PolicyRun
    return kind.start(scenario, configured, horizon, seed, replication)


_loops: dict[str, Kernel] = {}
_compiling = Lock()


def users_loop_of(policy: Policy, model: PerturbationModel, packed: PackedState, trial: Callable[[], Any]) -> Kernel:
    """Return the loop for a policy of users under a perturbation model, compiled if possible."""
    bindings = model_bindings(model)
    name = kernel_name("run_users", policy, f"{bindings.name}_{packed.kind}")
    if name not in _loops:
        with _compiling:
            if name not in _loops:
                functions = {"select": policy.select, "update": policy.update}
                functions |= {
                    "signal": policy.signal or users_loop.no_signal,
                    "hear": policy.hear or users_loop.no_signal,
                }
                more = bindings._replace(functions={**bindings.functions, "unpack": packed.unpack})
                _loops[name] = bind_policy(users_loop.run_users, name, policy, functions, more, trial())
    return check_compiled(policy, _loops[name])


@dataclass
class UsersRun:
    """Independent instances of one policy, one per user, on one sample path."""

    scenario: Scenario
    configured: ConfiguredPolicy
    setup: Setup
    seed: int
    replication: int
    means: Floats
    path: SamplePath
    tally: UsersTally
    presence: Presence
    kernel: Kernel
    packed: list[PackedState]  # setup, state and random stream of each user
    blocks: Any  # the blocks of `packed`, one row per user, or their values if the loop is not compiled
    stays: Ints  # how often each user has arrived
    at: int = 0  # slots run so far

    @classmethod
    def start(
        cls, scenario: Scenario, configured: ConfiguredPolicy, horizon: int, seed: int, replication: int
    ) -> "UsersRun":
        policy, N = configured.policy, scenario.users
        setup = setup_for(scenario, configured, horizon)
        theta, means = path_parameters(scenario, seed, replication)
        path = new_path(scenario, seed, replication, theta)
        presence = Presence(scenario, seed, replication, horizon)
        tally = new_users_tally(scenario, path, presence.present, horizon, seed, replication)
        packed = [_new_user(policy, setup, seed, replication, j, 0) for j in range(N)]

        def trial() -> Any:
            return _blocks(packed, True), path, tally, 0, 0

        kernel = users_loop_of(policy, scenario.perturbation.model, packed[0], trial)
        if not kernel.compiled:
            packed = [unpacked(one.values) for one in packed]
        return cls(
            scenario, configured, setup, seed, replication, means, path, tally, presence, kernel, packed,
            _blocks(packed, kernel.compiled), np.zeros(N, np.int64),
        )  # fmt: skip

    @property
    def state(self) -> tuple[Any, ...]:
        """The state of the policy of each user."""
        return tuple(one.values[1] for one in self.packed)

    def to(self, slot: int) -> None:
        """Run up to and including a slot."""
        for changes, end in self.presence.stretches(self.at, slot):
            for _, j, arrives in changes:
                if arrives:
                    self._arrive(j)
            if changes:
                self._set_best()
            self._run(end)

    def _arrive(self, j: int) -> None:
        """Let user j begin without any memory."""
        self.tally.before[j], self.tally.last[j] = self.at, -1
        if self.stays[j] > 0:
            made = _new_user(self.configured.policy, self.setup, self.seed, self.replication, j, int(self.stays[j]))
            self.packed[j] = made if self.kernel.compiled else unpacked(made.values)
            self.blocks[j] = self.packed[j].block
        self.stays[j] += 1

    def _set_best(self) -> None:
        """Set the best fixed channels of the present users, from which suboptimal plays and regret are counted."""
        present = self.presence.present
        self.tally.static_worse[...] = best_fixed(self.scenario, self.means, present)[1]
        self.tally.table_best[...] = best_fixed(self.scenario, self.scenario.table_means, present)[0]

    def _run(self, slot: int) -> None:
        policy, model = self.configured.policy, self.scenario.perturbation.model
        with policy_errors(policy), named_model(model, alone=policy.source is None):
            broken = self.kernel.run(self.blocks, self.path, self.tally, self.at, slot)
        check_model(self.scenario, self.path.fault)
        if broken:
            raise InputError(self._fault(broken))
        self.at = slot

    def _fault(self, slot: int) -> str:
        user, count, channel = (int(value) for value in self.tally.fault)
        where = f"policy {self.configured.policy.name}, user {user}"
        if count == TOO_MANY_BITS:
            return (
                f"{where}: sent in {counted(channel, 'minislot')} in slot {slot}; must be at most"
                f" {self.tally.control_bits} (scenario.users.control_bits)"
            )
        if count == 1:
            return (
                f"{where}: picks = [{channel}] in slot {slot}; must be an available channel of 0 to"
                f" {self.scenario.K - 1}"
            )
        return f"{where}: selected {counted(count, 'channel')} in slot {slot}; must be 1, or 0 to stay silent"


def _blocks(packed: list[PackedState], compiled: bool) -> Any:
    """Return the blocks of all users as rows of one array, as compiled code needs them, or as a list."""
    blocks = [one.block for one in packed]
    return np.stack(blocks) if compiled and not INTERPRETED else blocks


def _new_user(policy: Policy, setup: Setup, seed: int, replication: int, user: int, stay: int) -> PackedState:
    """Return what a user knows when it arrives for the first time (stay 0) or again."""
    own = copied(setup)
    own_rng = rng.stream(seed, replication, rng.USERS, user, stay)
    with policy_errors(policy):
        return pack((own, policy.init(own), own_rng))


def new_users_tally(
    scenario: Scenario, path: SamplePath, present: Flags, horizon: int, seed: int, replication: int
) -> UsersTally:
    given, N, K = scenario.uncoordinated, scenario.users, scenario.K
    assert given is not None
    t = kept_checkpoints(scenario, horizon)
    rows, minislots = len(USER_CURVES) + N + K, N * given.control_bits
    return UsersTally(
        t=t,
        curves=np.zeros((rows, len(t))),
        now=np.zeros(rows),
        carry=np.zeros(rows),
        cursor=np.zeros(1, np.int64),
        plays=np.zeros(K, np.int64),
        present=present,
        before=np.zeros(N, np.int64),
        picks=np.full(N, -1, np.int64),
        last=np.full(N, -1, np.int64),
        on_channel=np.zeros(K, np.int64),
        winner=np.zeros(K, np.int64),
        choice=np.zeros(K, np.int64),
        minislots=np.zeros(minislots, np.int64),
        own_minislots=np.zeros(minislots, np.int64),
        quality=np.ones((N, K)) if given.quality is None else np.array(given.quality),
        static_worse=np.zeros((len(path.available), K), np.bool_),
        table_mean=scenario.table_means,
        table_best=np.zeros(len(path.available)),
        collision=COLLISION.index(given.collision),
        observes=OBSERVES.index(given.observes),
        control_bits=given.control_bits,
        sensing=scenario.sensing == "all",
        rng=rng.stream(seed, replication, rng.COLLISIONS),
        hidden_states=np.full(K, -1, np.int64),
        hidden_perturbations=np.full(K, np.nan),
        indices=np.zeros(K),
        scratch=np.zeros(2 * K),
        fault=np.zeros(3, np.int64),
    )
