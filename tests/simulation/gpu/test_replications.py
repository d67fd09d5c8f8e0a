"""Simulations on a simulated GPU beside the CPU's, slot by slot interpreted: the same plays and rewards.

Where theta is drawn on the GPU it differs by 1e-11, and so do means. (Where the CPU counts a sample of contexts, it
differs by 1e-3; none of these replications do.)
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.simulation.gpu import layout, replications, set_up
from idleband.simulation.gpu.layout import Kind
from idleband.simulation.gpu.replications import Batch, Simulation
from idleband.simulation.run import PolicyRun, ReferenceRun
from tests.contracts.configurations import EVERY

SLOTS, SEED = 40, 5


def simulated(
    scenario: ib.Scenario, policy: str | None, which: Any = range(3), slots: int = SLOTS, **how: Any
) -> Batch:
    """Return the results of replications on the simulated GPU, those of all batches together."""
    simulation = Simulation(scenario, None if policy is None else ib.policy(policy), slots, SEED, **how)
    batches = [batch for _, batch in simulation.run(which, lambda slots: None)]
    return Batch(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))


def on_cpu(scenario: ib.Scenario, policy: str, which: Any = range(3), slots: int = SLOTS) -> Batch:
    runs = [PolicyRun.start(scenario, ib.policy(policy), slots, SEED, i) for i in which]
    for run in runs:
        run.to(slots)
    return Batch(np.array([run.tally.curves for run in runs]), np.array([run.tally.plays for run in runs]))


def references_on_cpu(scenario: ib.Scenario, which: Any = range(3)) -> Batch:
    runs = [ReferenceRun.start(scenario, SLOTS, SEED, i) for i in which]
    for run in runs:
        run.to(SLOTS)
    return Batch(np.array([run.references.curves for run in runs]), np.zeros((len(runs), 0), np.int64))


def assert_same(found: Batch, wanted: Batch, tolerance: float = 0.0) -> None:
    assert np.array_equal(found.plays, wanted.plays)
    assert np.allclose(found.curves, wanted.curves, rtol=0.0, atol=tolerance)


S1 = ib.scenario("S1")


def test_any_segments_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulated(S1, "mp-lucb")
    monkeypatch.setattr(replications, "FIRST_SEGMENT", 3)
    monkeypatch.setattr(replications, "SEGMENT", 0.0)  # then a slot at a time
    advanced: list[int] = []
    simulation = Simulation(S1, ib.policy("mp-lucb"), SLOTS, SEED)
    ((which, batch),) = simulation.run(range(3), advanced.append)
    assert_same(batch, whole)
    assert advanced == [9] + [3] * (SLOTS - 3)
    assert list(which) == [0, 1, 2]


def test_any_batches_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulated(S1, "mp-ucb", range(70), slots=4)
    monkeypatch.setattr(replications, "MAX_BATCH", 32)
    simulation = Simulation(S1, ib.policy("mp-ucb"), 4, SEED)
    batches = list(simulation.run(range(70), lambda slots: None))
    assert [len(which) for which, _ in batches] == [32, 32, 6]
    assert_same(Batch(*(np.concatenate(parts) for parts in zip(*(b for _, b in batches), strict=True))), whole)


def test_some_replications_are_those_of_all() -> None:
    every = simulated(S1, "mp-ucb", range(8))
    some = simulated(S1, "mp-ucb", [1, 6, 7])
    assert_same(some, Batch(every.curves[[1, 6, 7]], every.plays[[1, 6, 7]]))


def test_what_does_not_fit_is_refused_and_batches_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(S1, ib.policy("mp-ucb"), SLOTS, SEED)
    each = simulation.layout.bytes_per_replication() + 16
    monkeypatch.setattr(replications, "free_memory", lambda: 100 * each)
    assert simulation._batch_size() == 64
    monkeypatch.setattr(replications, "free_memory", lambda: 10 * each)
    with pytest.raises(InputError, match=r"policy mp-ucb: a replication needs 0 MiB, too much for the memory"):
        simulation._batch_size()


@pytest.mark.parametrize(
    "perturbation",
    ["none", "linear", "quadratic", "cosine", {"kind": "quadratic", "per_channel": True}, {"theta": [-0.5] * 8}],
)
def test_scenarios_set_up_on_the_gpu(perturbation: Any) -> None:
    check_set_up_on_gpu(ib.scenario("S1", perturbation=perturbation))


def test_random_regimes_are_set_up_on_the_gpu() -> None:
    check_set_up_on_gpu(ib.scenario(EVERY["random regimes"], context={"kind": "uniform"}, perturbation={"noise": 0.0}))


def check_set_up_on_gpu(scenario: ib.Scenario) -> None:
    which = [0, 2]
    assert Simulation(scenario, ib.policy("mp-lucb"), SLOTS, SEED).set_up_on_gpu
    assert_same(simulated(scenario, "mp-lucb", which), on_cpu(scenario, "mp-lucb", which), 1e-8)
    assert_same(simulated(scenario, None, which), references_on_cpu(scenario, which), 1e-8)


FROM_HOST = {
    "recording": EVERY["replay"],
    "AR(1) contexts": EVERY["random regimes"],
    "AR(1) contexts with uniform margins": ib.scenario("S1", context={"kind": "ar1", "correlation": 0.5}),
    "drift": ib.scenario("S1", perturbation={"drift": 30}),
    "noise": ib.scenario("S1", perturbation={"noise": 0.2}),
    "theta_norm": EVERY["three states"],
    "additive": ib.scenario("S4", reward="additive", perturbation={"clear": 0.8}),
}


@pytest.mark.parametrize("name", FROM_HOST)
def test_other_scenarios_are_set_up_on_the_host(name: str) -> None:
    scenario = FROM_HOST[name]
    assert not Simulation(scenario, ib.policy("mp-lucb"), SLOTS, SEED).set_up_on_gpu
    assert_same(simulated(scenario, "mp-lucb"), on_cpu(scenario, "mp-lucb"))
    assert_same(simulated(scenario, None), references_on_cpu(scenario))


@pytest.mark.parametrize("policy", ["oracle-belief", "genie"])
def test_oracles(policy: str) -> None:
    assert_same(simulated(S1, policy), on_cpu(S1, policy), 1e-8)


@pytest.mark.parametrize("bytes_", [0, 400])
@pytest.mark.parametrize("policy", ["mp-lucb", "oracle-belief"])
def test_arrays_too_large_for_local_memory(monkeypatch: pytest.MonkeyPatch, bytes_: int, policy: str) -> None:
    """Also contexts, which are used as a matrix and as a vector, plays and theta."""
    monkeypatch.setattr(layout, "MAX_LOCAL_BYTES", bytes_)
    monkeypatch.setattr(layout, "SMALL_BYTES", 16)
    assert Simulation(S1, ib.policy(policy), SLOTS, SEED).layout.own(Kind.TILED)
    assert_same(simulated(S1, policy, range(33), 5), on_cpu(S1, policy, range(33), 5), 1e-8)


def test_many_channels() -> None:
    K = 300
    scenario = ib.scenario(p01=[0.1] * K, p10=[0.1 + 0.8 * k / K for k in range(K)], users=20)
    simulation = Simulation(scenario, ib.policy("mp-lucb"), 5, SEED)
    assert simulation.layout.find(simulation.path.x).kind is Kind.TILED
    assert_same(simulated(scenario, "mp-lucb", range(2), 5), on_cpu(scenario, "mp-lucb", range(2), 5), 1e-8)


def test_a_theta_that_is_not_found_on_the_gpu_is_that_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "MAX_DRAWS", 0)
    for scenario in (S1, ib.scenario("S4", perturbation={"per_channel": True})):
        assert_same(simulated(scenario, "mp-lucb"), on_cpu(scenario, "mp-lucb"))


# --- precision -------------------------------------------------------------------------------------------------------


def test_rewards_in_float32() -> None:
    """A reward differs only where rounding moves n across 1. Its density there is below 4 and it is rounded by less
    than 2^-20, so that of 40 x 5 x 10 plays 0.008 are expected to differ."""
    wide, narrow = (simulated(S1, "mp-random", range(10), narrow=one) for one in (False, True))
    assert narrow.curves.dtype == np.float64
    assert np.array_equal(wide.plays, narrow.plays)
    assert np.allclose(wide.curves[:, 0], narrow.curves[:, 0], rtol=0, atol=1e-3)


def test_a_policy_in_float32_earns_as_much() -> None:
    """Indices that are equal in 64 bits may differ in 32, so that paths differ; mean rewards do not, within four
    standard errors of the paired difference."""
    wide, narrow = (simulated(S1, "mp-ucb", range(12), narrow=one) for one in (False, True))
    difference = narrow.curves[:, 0, -1] - wide.curves[:, 0, -1]
    assert abs(difference.mean()) <= 4.0 * difference.std(ddof=1) / np.sqrt(len(difference))


def test_float32_rewards_of_a_sum_are_within_its_rounding() -> None:
    """With the additive reward, each of at most 200 plays rounds h - n, below 4, by at most 2^-22, and n itself by 9
    roundings of 2^-24 of at most 8 terms below 4."""
    scenario = ib.scenario("S4", reward="additive", perturbation={"clear": 0.8})
    wide, narrow = (simulated(scenario, "mp-random", narrow=one) for one in (False, True))
    assert np.array_equal(wide.plays, narrow.plays)
    bound = SLOTS * scenario.users * (2**-22 + 9 * 2**-24 * 4)
    assert 0.0 < np.abs(wide.curves[:, 0] - narrow.curves[:, 0]).max() < bound


# --- users' code -----------------------------------------------------------------------------------------------------

OWN = """
from typing import Annotated, NamedTuple
import numba
import numpy as np
import idleband as ib

@numba.njit
def shifted(first, count, K):
    return (first + count) % K

class State(NamedTuple):
    counts: np.ndarray

@ib.register(name="own")
class Own:
    class Params(NamedTuple):
        first: Annotated[int, ib.AtLeast(0), "the first channel"] = 0
        fault: Annotated[int, ib.OneOf("none", "same", "raise"), "what goes wrong in slot 7"] = 0
    def init(setup):
        return State(np.zeros(setup.K))
    def select(setup, state, slot, picks):
        first = setup.params.first + int(ib.random.uniform(slot.rng) * setup.K)
        for m in range(setup.M):
            picks[m] = shifted(first, m, setup.K)
        if slot.t == 7 and setup.params.fault == 1:
            picks[1] = picks[0]
        if slot.t == 7 and setup.params.fault == 2:
            raise ValueError("seven")
        return setup.M
    def update(setup, state, slot, feedback):
        state.counts[feedback.channel] += 1
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path / 'own.py'}:own"


def test_a_policy_of_a_file(own: str) -> None:
    policy = f"{own}:first=2"
    assert_same(simulated(S1, policy), on_cpu(S1, policy))


def test_invalid_channels_are_reported_as_on_the_cpu(own: str) -> None:
    with pytest.raises(InputError) as gpu:
        simulated(S1, f"{own}:fault=same")
    with pytest.raises(InputError) as cpu:
        on_cpu(S1, f"{own}:fault=same", [0])
    assert str(gpu.value) == str(cpu.value)
    assert "in slot 7; must be 5 different available channels" in str(gpu.value)


def test_an_exception_of_a_policy_is_reported_in_one_line(own: str) -> None:
    with pytest.raises(InputError, match=r"^policy own: ValueError: .*seven"):
        simulated(S1, f"{own}:fault=raise")


def test_a_thread_that_ended_without_a_result_is_reported(own: str) -> None:
    """Compiled code leaves RAISED behind where a policy raises an exception."""
    simulation = Simulation(S1, ib.policy(own), SLOTS, SEED)
    memory = simulation._new_memory(3)
    broken = np.array([0, replications.RAISED, 3])
    with pytest.raises(InputError, match=r"^policy own: raised an exception on the GPU; on the CPU"):
        simulation._check(memory, replications.cuda_module().to_device(broken))


def test_a_state_that_has_no_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.replace("State(np.zeros(setup.K))", 'State("counts")'))
    with pytest.raises(InputError, match=r"^policy own: cannot run on a GPU: counts = 'counts': must be a number"):
        simulated(S1, f"{tmp_path / 'own.py'}:own")


def test_a_users_model_and_a_value_that_is_not_finite() -> None:
    """The value is nan in one slot on one channel: until then all is as on the CPU, and so is the error."""
    walk = ReferenceRun.start(S1, SLOTS, SEED, 0)
    walk.to(17)
    there = float(walk.path.x[3, 0])

    @ib.register_perturbation(name="trap")
    class Trap:
        def draw(rng, dimension, clear):  # type: ignore[no-untyped-def]
            return [1.2]

        def value(theta, x):  # type: ignore[no-untyped-def]
            return math.nan if x[0] == there else theta[0] * x[1]

    scenario = ib.scenario("S1", perturbation={"kind": "trap", "theta": [1.2]})
    assert_same(simulated(scenario, "mp-lucb", [0], 16), on_cpu(scenario, "mp-lucb", [0], 16))
    message = r"^perturbation model trap: value = nan in slot 17, channel 3 \(ch4\); must be a finite number$"
    for run in (simulated, on_cpu):
        with pytest.raises(InputError, match=message):
            run(scenario, "mp-lucb", [0], 20)
    with pytest.raises(InputError, match=message):
        simulated(scenario, None, [0], 20)
