"""Measure the package beside other bandit libraries, in one run on one core, and write the tables of peers.md.

    make peers                                                 # installs them into .venv-peers and runs this
    .venv-peers/bin/python benchmarks/peers.py --rounds 7      # again; --out FILE writes elsewhere

The time of the package is that of the whole simulation of a slot: states, contexts, perturbations, policy, bookkeeping.
What is timed of a peer is said in its row. Either it is fed: its policy selects and learns on recorded contexts and
rewards of the package (peer_policies.py), and nothing else is timed. Or its own simulation runs. Times are processor
times of the process, because other work on the machine changes them less. Rounds alternate over all loops; rates are
medians over the rounds, and a ratio is the median of the ratios of the rounds, with its extremes.
"""

import argparse
import datetime
import importlib.metadata
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from machine import processor, restart_on_one_core

import idleband as ib
from idleband.policies.registry import policy as configured_policy
from idleband.simulation.run import PolicyRun

THETA = [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197]
SECONDS = 0.25  # about, of one measurement
PATHS, SLOTS = 8, 1000  # recorded replications, and slots of each, on which fed policies are compared
MANY_JAX = 64  # replications in one vmap
CLOCK = "its clock counts plays, here slots"

# --- problems --------------------------------------------------------------------------------------------------------


def s1(users: int = 5) -> ib.Scenario:
    """Return scenario S1 with a fixed theta: K = 10, d = 8, restless channels, linear perturbation."""
    return ib.scenario("S1", users=users, perturbation={"theta": THETA})


def iid() -> ib.Scenario:
    """Return S1's channels without memory, contexts and perturbation: Bernoulli rewards with its idle shares."""
    chains = s1().to_dict()
    idle = np.array(chains["p01"]) / (np.array(chains["p01"]) + np.array(chains["p10"]))
    return ib.scenario(
        p01=idle.tolist(), p10=(1 - idle).tolist(), rewards=[0.0, 1.0], reward="additive", users=5,
        context={"dimension": 1}, perturbation={"kind": "none"}, name="S1 without memory",
    )  # fmt: skip


PROBLEMS: dict[str, Callable[[], ib.Scenario]] = {"S1": s1, "S1, M = 1": lambda: s1(1), "i.i.d.": iid}


class SlotRecord(NamedTuple):
    """A recorded sample path and what a policy of the package selected on it."""

    x: np.ndarray  # (T, K, d) contexts
    good: np.ndarray  # (T, K)
    n: np.ndarray  # (T, K) perturbations
    h: np.ndarray  # (T, K) state rewards
    r: np.ndarray  # (T, K) threshold rewards
    picked: np.ndarray  # (T, K)


Recorded = dict[tuple[str, str], list[SlotRecord]]  # by problem and policy
Rates = dict[Any, list[float]]  # slots per second in each round


def record(scenario: ib.Scenario, policy: str, paths: int = PATHS, slots: int = SLOTS) -> list[SlotRecord]:
    """Run a policy of the package and return what happened on all channels."""
    study = ib.simulate(scenario, policy, horizon=slots, replications=paths, seed=2, record="slots")
    found = []
    for _, table in study.slots.groupby("replication"):
        shape = (slots, scenario.K)
        good, n = table.good.to_numpy().reshape(shape), table.perturbation.to_numpy().reshape(shape)
        x = table[[f"x{i}" for i in range(scenario.dimension)]].to_numpy().reshape(*shape, scenario.dimension)
        h, r = np.where(good, 1.0, 0.1), np.where(good - n > 0, 1.0, 0.1)
        found.append(SlotRecord(x, good, n, h, r, table.picked.to_numpy().reshape(shape)))
    return found


# --- loops -----------------------------------------------------------------------------------------------------------


class Fed(NamedTuple):
    """A peer's policy for recorded paths: `new` returns functions select(t, x) and learn(picks, x, h, r, n)."""

    new: Callable[[int, int, int], tuple[Callable[..., Any], Callable[..., None]]]
    slots: int = SLOTS

    def run(self, path: SlotRecord, M: int) -> tuple[int, float, np.ndarray]:
        """Return slots, seconds and the selections (T, K) of one pass over a path."""
        T, K = path.r.shape
        select, learn = self.new(K, M, path.x.shape[2])
        T = min(T, self.slots)
        chosen = []
        began = process_time()
        for t in range(T):
            x = path.x[t]
            picks = select(t + 1, x)
            learn(picks, x, path.h[t, picks], path.r[t, picks], path.n[t, picks])
            chosen.append(picks)
        seconds = process_time() - began
        picked = np.zeros((T, K), bool)
        np.put_along_axis(picked, np.array(chosen), True, 1)
        return T, seconds, picked


class Own(NamedTuple):
    """A simulation of a peer: `run(seed)` returns slots, seconds, and its reward per slot in each replication."""

    run: Callable[[int], tuple[int, float, np.ndarray]]


@dataclass(frozen=True)
class Row:
    """A comparison."""

    policy: str  # of the package
    peer: str
    timed: str
    loop: Fed | Own
    problem: str = "S1"  # of the package
    same: str = ""  # policy of the package with which selections or rewards are compared
    exact: bool = False  # whether selections must be the same in every slot
    recorded: bool = False  # whether the peer's own loop runs on the recorded slots of `same`
    note: str = ""  # why they may differ

    @property
    def M(self) -> int:
        return PROBLEMS[self.problem]().users


class Ours:
    """The compiled loop of a policy of the package."""

    def __init__(self, problem: str, policy: str) -> None:
        self.scenario, self.configured = PROBLEMS[problem](), configured_policy(policy)
        self.slots = 1000
        for _ in range(2):  # compiles, then finds how many slots take the time of a measurement
            _, seconds = self.measure(0)
            self.slots = max(100, int(self.slots * SECONDS / seconds))

    def measure(self, i: int) -> tuple[int, float]:
        run = PolicyRun.start(self.scenario, self.configured, self.slots + 1000, seed=1, replication=i)
        run.to(1000)  # past the first slots, in which nothing is known
        began = process_time()
        run.to(run.at + self.slots)
        return self.slots, process_time() - began


def paths_of(row: Row, paths: Recorded) -> list[SlotRecord]:
    """Return the recorded slots for a policy that is fed: those of the policy with which it is compared."""
    key = row.problem, row.same
    return paths[key] if key in paths else paths["S1", "mp-ucb"]


def measure(row: Row, paths: Recorded, i: int) -> tuple[int, float]:
    """Run a peer for about SECONDS; return slots and seconds."""
    slots, seconds = 0, 0.0
    while seconds < SECONDS:
        if isinstance(row.loop, Own):
            T, took, _ = row.loop.run(i)
        else:
            T, took, _ = row.loop.run(paths_of(row, paths)[i % PATHS], row.M)
        slots, seconds = slots + T, seconds + took
    return slots, seconds


# --- agreement -------------------------------------------------------------------------------------------------------


def agreement(row: Row, paths: Recorded) -> str:
    """Compare selections or rewards with those of the package; raise AssertionError if the same policies differ."""
    if not row.same:
        return row.note
    if isinstance(row.loop, Own):
        _, _, theirs = row.loop.run(1000)
        if row.recorded:
            ours = np.array([(path.r * path.picked).sum(1).mean() for path in paths_of(row, paths)])
            assert np.allclose(theirs, ours, rtol=0, atol=1e-12), (row.peer, theirs, ours)
            return "same reward on every path"
        T = 2000
        ours = ib.simulate(PROBLEMS[row.problem](), row.same, horizon=T, replications=1024, seed=3).reward[:, -1] / T
        gap = theirs.mean() - ours.mean()
        error = math.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs))
        text = f"reward {theirs.mean():.3f}, here {ours.mean():.3f}, difference {gap:+.3f} ± {2 * error:.3f}"
    else:
        same, gaps = [], []
        for path in paths_of(row, paths):
            T, _, picked = row.loop.run(path, row.M)
            same.append((picked == path.picked[:T]).all(1).mean())
            gaps.append((path.r[:T] * picked).sum(1).mean() - (path.r[:T] * path.picked[:T]).sum(1).mean())
        if row.exact:
            assert min(same) == 1.0, (row.peer, row.timed, same)
            return f"same selections as {row.same} in every slot"
        gap, error = float(np.mean(gaps)), float(np.std(gaps, ddof=1) / math.sqrt(len(gaps)))
        text = f"same selections in {100 * np.mean(same):.0f}% of slots, reward {gap:+.3f} ± {2 * error:.3f}"
    assert row.note == CLOCK or abs(gap) < 5 * error + 1e-12, (row.peer, row.timed, text)
    return f"{text}; {row.note}" if row.note else text


# --- rows of this repository ------------------------------------------------------------------------------------------


def numpy_policy(name: str) -> Callable[..., Any]:
    from numpy_reference import POLICIES

    def new(K: int, M: int, d: int) -> tuple[Callable[..., Any], Callable[..., None]]:
        policy = POLICIES[name](K, M, d)
        return policy.select, policy.learn

    return new


def numpy_loop(name: str) -> Own:
    from numpy_reference import POLICIES, simulate

    chains = s1().to_dict()
    p01, p10, theta = np.array(chains["p01"]), np.array(chains["p10"]), np.array(THETA)

    def run(seed: int) -> tuple[int, float, np.ndarray]:
        T, R = 2000, 1 if seed < 1000 else 20
        rewards = np.zeros(R)
        began = process_time()
        for i in range(R):
            rewards[i] = simulate(POLICIES[name](10, 5, 8), p01, p10, theta, T, 100 * seed + i) / T
        return R * T, process_time() - began, rewards

    return Own(run)


def jax_loop(name: str, replications: int) -> Own:
    import jax
    import jax_reference

    chains = s1().to_dict()
    arguments = [jax.numpy.array(a) for a in (chains["p01"], chains["p10"], THETA)]
    T = 2000 if replications > 1 else 20_000

    def total(seed: int, R: int, T: int) -> np.ndarray:
        keys = jax.random.split(jax.random.key(seed), R)
        return np.asarray(jax_reference.simulate_many(name, keys, *arguments, 5, T))

    def run(seed: int) -> tuple[int, float, np.ndarray]:
        if seed >= 1000:
            return 0, 0.0, total(seed, 1024, 2000) / 2000
        began = process_time()
        if replications == 1:
            rewards = np.asarray(jax_reference.simulate(name, jax.random.key(seed), *arguments, 5, T))[None]
        else:
            rewards = total(seed, replications, T)
        return T * replications, process_time() - began, rewards / T

    return Own(run)


def check_numpy(name: str, paths: list[SlotRecord]) -> None:
    """Raise AssertionError unless the NumPy policy selects what the package does, on recorded paths."""
    for path in paths:
        assert (Fed(numpy_policy(name)).run(path, 5)[2] == path.picked).all(), name


def check_jax(name: str, paths: list[SlotRecord]) -> None:
    """Raise AssertionError unless the JAX policy selects what the package does, on recorded paths."""
    import jax_reference

    for path in paths:
        picks = np.asarray(jax_reference.replay(name, path.x, path.good, path.n, 5))
        picked = np.zeros_like(path.picked)
        np.put_along_axis(picked, picks, True, 1)
        assert (picked == path.picked).all(), name


def torch_loop() -> Own:
    import torch_reference

    def run(seed: int) -> tuple[int, float, np.ndarray]:
        slots = 60
        return slots, slots * torch_reference.seconds_per_slot(slots, warm_up=20), np.zeros(0)

    return Own(run)


def rows(paths: Recorded) -> list[Row]:
    """Return all comparisons; `paths` receives the recorded slots that they need."""
    import peer_policies as peers

    for key in (("S1", "mp-ucb"), ("S1", "mp-lucb"), ("S1", "linucb"), ("S1, M = 1", "linucb"), ("S1, M = 1", "c2ucb")):
        paths[key] = record(PROBLEMS[key[0]](), key[1])
    single = paths["S1, M = 1", "c2ucb"]
    chains = s1().to_dict()
    idle = np.array(chains["p01"]) / (np.array(chains["p01"]) + np.array(chains["p10"]))
    small = "neural-ucb:shared=true,covariance=diagonal"
    smp, mab, py, coba, cal = "SMPyBandits", "MABWiser", "pymab", "coba", "calvera"
    return [
        Row("mp-ucb", smp, "own loop: `EvaluatorMultiPlayers`, `CentralizedMultiplePlay` of `UCBalpha`",
            Own(peers.smpybandits_simulation(idle, 5)), "i.i.d.", "mp-ucb", note=CLOCK),
        Row("mp-ucb", smp, "fed: `UCBalpha.choiceMultiple(5)` and `getReward`; its clock set to slots",
            Fed(peers.smpybandits_ucb), same="mp-ucb", note="it breaks ties at random"),
        Row("mp-ucb", mab, "fed: the 5 largest `predict_expectations` of `UCB1`, `partial_fit`",
            Fed(peers.mabwiser_ucb), same="mp-ucb", note=CLOCK),
        Row("mp-ucb", coba, "own loop: `SequentialCB` of `BanditUCBLearner` (UCB1-tuned) on recorded slots",
            Own(peers.coba_simulation(peers.coba_ucb, single, False)), "S1, M = 1", note="another index"),
        Row("mp-ucb", coba, "own loop: `SequentialCB` of `BanditEpsilonLearner` on recorded slots",
            Own(peers.coba_simulation(peers.coba_epsilon, single, False)), "S1, M = 1", note="another policy"),
        Row("mp-ucb", "NumPy", "whole simulation, `benchmarks/numpy_reference.py`",
            numpy_loop("mp-ucb"), same="mp-ucb"),
        Row("mp-ucb", "JAX", "whole simulation, one replication, `benchmarks/jax_reference.py`",
            jax_loop("mp-ucb", 1), same="mp-ucb"),
        Row("mp-ucb", "JAX", f"whole simulation, `vmap` over {MANY_JAX} replications",
            jax_loop("mp-ucb", MANY_JAX), same="mp-ucb"),
        Row("mp-lucb", py, "fed: the 5 largest `upper_confidence_bounds` of `LinUCBPolicy`, Python backend; `update`",
            Fed(peers.pymab_linucb_indices), same="linucb", exact=True),
        Row("mp-lucb", py, "fed: `select_action` and `update` of `LinUCBPolicy`, Rust backend",
            Fed(peers.pymab_linucb), "S1, M = 1", "linucb", exact=True),
        Row("mp-lucb", py, "own loop: `Experiment`, Rust backend, linear normal rewards, normal contexts",
            Own(peers.pymab_simulation(10, 8, "rust")), "S1, M = 1", note="another problem"),
        Row("mp-lucb", py, "own loop: `Experiment`, Python backend, the same",
            Own(peers.pymab_simulation(10, 8, "python")), "S1, M = 1", note="another problem"),
        Row("mp-lucb", mab, "fed: the 5 largest of the diagonal of `predict_expectations` of `LinUCB`, `partial_fit`",
            Fed(peers.mabwiser_linucb, 200), same="linucb", exact=True),
        Row("c2ucb", coba, "own loop: `SequentialCB` of `LinUCBLearner` on recorded slots",
            Own(peers.coba_simulation(peers.coba_linucb, single, True)), "S1, M = 1", "c2ucb", recorded=True),
        Row("mp-lucb", "NumPy", "whole simulation, `benchmarks/numpy_reference.py`",
            numpy_loop("mp-lucb"), same="mp-lucb"),
        Row("mp-lucb", "JAX", "whole simulation, one replication, `benchmarks/jax_reference.py`",
            jax_loop("mp-lucb", 1), same="mp-lucb"),
        Row("mp-lucb", "JAX", f"whole simulation, `vmap` over {MANY_JAX} replications",
            jax_loop("mp-lucb", MANY_JAX), same="mp-lucb"),
        Row("mp-nucb", cal, "fed: `NeuralUCBBandit` with `TopKSelector(5)`; one training step of 16 samples per slot",
            Fed(peers.calvera_neural_ucb(1), 50), note="another model: one network, diagonal covariance"),
        Row("mp-nucb", cal, "fed: the same, a training step every 100 slots",
            Fed(peers.calvera_neural_ucb(100), 200), note="the same"),
        Row("mp-nucb", cal, "fed: the same, never trained",
            Fed(peers.calvera_neural_ucb(0), 200), note="the same"),
        Row(f"{small},train_every=1", cal, "fed: one training step of 16 samples per slot",
            Fed(peers.calvera_neural_ucb(1), 50), note="the same kind of model"),
        Row(f"{small},train_every=100", cal, "fed: a training step every 100 slots",
            Fed(peers.calvera_neural_ucb(100), 200), note="the same kind of model"),
        Row("mp-nucb", "PyTorch", "whole simulation, `benchmarks/torch_reference.py`",
            torch_loop(), note="the same model and work, other random numbers"),
    ]  # fmt: skip


# --- the run and its tables ------------------------------------------------------------------------------------------

DISTRIBUTIONS = {"SMPyBandits": "SMPyBandits", "MABWiser": "mabwiser", "pymab": "pymab", "coba": "coba",
                 "calvera": "calvera", "NumPy": "numpy", "JAX": "jax", "PyTorch": "torch"}  # fmt: skip
LICENCES = {"SMPyBandits": "MIT", "MABWiser": "Apache-2.0", "pymab": "MIT", "coba": "BSD-3-Clause", "calvera": "MIT",
            "NumPy": "BSD-3-Clause", "JAX": "Apache-2.0", "PyTorch": "BSD-3-Clause"}  # fmt: skip
EXPRESSES = {  # multi-play, restless channels, contexts per channel, nonlinear model; and what was needed
    "SMPyBandits": ("yes", "`MarkovianMAB`, not in its multi-player evaluator, which draws i.i.d.", "no", "no",
                    "`scipy.special.btdtri` and `numpy.in1d` restored at import"),
    "MABWiser": ("no, but returns all indices", "no simulation of channels", "no, one context for all arms", "trees",
                 "the first slots chosen here, because it predicts after a fit"),
    "pymab": ("no; the Python backend returns all indices", "no; a user's environment may", "yes", "logistic", ""),
    "coba": ("no", "on recorded rewards", "yes, as features of actions", "through Vowpal Wabbit", ""),
    "calvera": ("yes", "no simulation of channels", "yes, one model for all", "yes",
                "installed without torchvision and torchaudio, which its bandits do not import"),
    "NumPy": ("yes", "yes", "yes", "not written", ""),
    "JAX": ("yes", "yes", "yes", "not written", ""),
    "PyTorch": ("yes", "no, i.i.d. states", "yes", "yes", ""),
}  # fmt: skip


def rounded(rate: float) -> str:
    """Return three significant digits with separators."""
    return f"{float(f'{rate:.3g}'):,.0f}"


def factor(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def speed_table(found: list[Row], ours: Rates, theirs: Rates, agreed: list[str]) -> str:
    """Return the table of speeds."""
    lines = [
        "| here | peer | timed of the peer | problem here | peer, slots per second | here, slots per second"
        " | times | agreement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for i, row in enumerate(found):
        mine, peer = ours[row.problem, row.policy], theirs[i]
        ratios = [a / b for a, b in zip(mine, peer, strict=True)]
        lines.append(
            f"| {row.policy} | {row.peer} | {row.timed} | {row.problem} | {rounded(median(peer))}"
            f" | {rounded(median(mine))} | **{factor(median(ratios))}** ({factor(min(ratios))} to"
            f" {factor(max(ratios))}) | {agreed[i]} |"
        )
    return "\n".join(lines)


def peers_table() -> str:
    """Return the table of peers: versions, licences, and what they can express."""
    lines = [
        "| peer | version | licence | several channels per slot | restless channels | contexts per channel"
        " | nonlinear model | to run it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for peer, words in EXPRESSES.items():
        version = importlib.metadata.version(DISTRIBUTIONS[peer]).partition("+")[0]
        lines.append(f"| {peer} | {version} | {LICENCES[peer]} | {' | '.join(words)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "peers.md")
    arguments = parser.parse_args()
    restart_on_one_core()

    paths: Recorded = {}
    found = rows(paths)
    agreed = []
    for row in found:
        agreed.append(agreement(row, paths))
        print(f"{row.policy}, {row.peer}, {row.timed}: {agreed[-1]}", flush=True)
    for name in ("mp-ucb", "mp-lucb"):
        check_numpy(name, paths["S1", name])
        check_jax(name, paths["S1", name])
    loops = {(row.problem, row.policy): Ours(row.problem, row.policy) for row in found}
    for row in found:  # compile and import
        measure(row, paths, 0)
    ours: Rates = {key: [] for key in loops}
    theirs: Rates = {i: [] for i in range(len(found))}
    for r in range(arguments.rounds):
        for i, row in enumerate(found):
            key = row.problem, row.policy
            if len(ours[key]) == r:
                slots, seconds = loops[key].measure(r)
                ours[key].append(slots / seconds)
            slots, seconds = measure(row, paths, r)
            theirs[i].append(slots / seconds)
        print(f"round {r + 1} of {arguments.rounds}", flush=True)
    day = datetime.datetime.now(datetime.UTC).date()
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name.lower())}" for name in ("idleband", "NumPy", "Numba", "SciPy")
    )
    arguments.out.write_text(
        speed_table(found, ours, theirs, agreed)
        + f"\n\n`python benchmarks/peers.py --rounds {arguments.rounds}`, {day}: one core of an {processor()}, Python"
        f" {platform.python_version()}, {versions}.\n\n" + peers_table() + "\n"
    )
    print(arguments.out.read_text())


if __name__ == "__main__":
    main()
