"""Contracts of every decentralised policy, on bands of every kind."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.rng import USERS as STREAM
from idleband.kernels.rng import stream
from idleband.policies.protocol import COLLISIONS_SEEN, OWN_STATES_SEEN
from idleband.simulation.users_loop import USER_CURVES
from idleband.simulation.users_run import UsersRun, start_run
from tests.conftest import ROOT
from tests.contracts.users_configurations import MEANS, PAIRS, SETTINGS, USERS, band, fits
from tests.contracts.users_digest import WHERE, slot_by_slot
from tests.environments.stepping import step_policy

SLOTS = 400
TABLE, COLLISIONS = USER_CURVES.index("regret_table"), USER_CURVES.index("user_collisions")


def begin(label: str, where: str, slots: int = SLOTS, seed: int = 3, replication: int = 0) -> UsersRun:
    found = start_run(band(label, where), USERS[label], slots, seed, replication)
    assert isinstance(found, UsersRun)
    return found


def picks_of(run: UsersRun, slots: int) -> np.ndarray:
    rows = []
    for t in range(run.at + 1, run.at + slots + 1):
        run.to(t)
        rows.append(run.tally.picks.copy())
    return np.array(rows)


def leaves(state: Any) -> list[np.ndarray]:
    return [leaf for part in state for leaf in (leaves(part) if isinstance(part, tuple) else [part])]


@pytest.mark.parametrize(("label", "where"), PAIRS)
def test_picks_are_valid_and_segments_do_not_matter(label: str, where: str) -> None:
    """A user plays one available channel or none; the run slot by slot equals the run at once."""
    run, whole = begin(label, where), begin(label, where)
    assert run.kernel.compiled
    whole.to(SLOTS)
    picks = picks_of(run, SLOTS)
    rows = run.scenario.available
    available = rows[np.arange(SLOTS) % len(rows)]
    for j in range(run.scenario.users):
        played = np.flatnonzero(picks[:, j] >= 0)
        assert available[played, picks[played, j]].all()
    assert np.bincount(picks[picks >= 0], minlength=run.scenario.K).tolist() == run.tally.plays.tolist()
    assert run.tally.plays.sum() > 0
    assert np.array_equal(run.tally.curves, whole.tally.curves)
    assert np.array_equal(run.tally.plays, whole.tally.plays)
    for one, other in zip(run.state, whole.state, strict=True):
        for a, b in zip(leaves(one), leaves(other), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
            assert np.isfinite(a).all()


@pytest.mark.parametrize("label", USERS)
def test_threads_do_not_matter_and_seeds_do(label: str) -> None:
    scenario = band(label, "short stays")
    one, two = (ib.simulate(scenario, USERS[label], horizon=200, replications=3, seed=9, threads=n) for n in (1, 2))
    other = ib.simulate(scenario, USERS[label], horizon=200, replications=3, seed=10)
    for column in one.curves:
        assert np.array_equal(one.curves[column], two.curves[column], equal_nan=True)
    assert not np.array_equal(one.reward, other.reward)


def test_compiled_equals_interpreted() -> None:
    command = [sys.executable, "-m", "tests.contracts.users_digest"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # no warnings
    interpreted = json.loads(done.stdout)
    assert list(interpreted) == list(USERS)
    for label in USERS:
        for where in WHERE:
            assert interpreted[label][where] == slot_by_slot(label, where), (label, where)


@pytest.mark.parametrize("where", ["independent", "colliding users share"])
@pytest.mark.parametrize("label", USERS)
def test_a_user_learns_of_others_by_collisions_only(label: str, where: str) -> None:
    """With another random stream of user 1, user 0 decides alike until a slot with another collision of user 0.

    What is sent in control minislots ends the comparison, too.
    """
    changed = 0
    for replication in range(5):
        usual, other = begin(label, where, replication=replication), begin(label, where, replication=replication)
        other.packed[1].values[2][...] = stream(77, replication, STREAM, 1)
        for t in range(1, SLOTS + 1):
            usual.to(t)
            other.to(t)
            a, b = usual.tally.picks, other.tally.picks
            assert a[0] == b[0], (label, t)
            changed += a[1] != b[1]
            observed = [
                (
                    run.tally.on_channel[run.tally.picks[0]] if run.tally.picks[0] >= 0 else 0,
                    run.tally.minislots.tolist(),
                )
                for run in (usual, other)
            ]
            if observed[0] != observed[1]:
                break
    assert changed > 0


@pytest.mark.parametrize("where", ["independent", "as many users as channels", "one user"])
@pytest.mark.parametrize("label", USERS)
def test_the_regret_is_that_of_plays_and_collisions(label: str, where: str) -> None:
    """Besson and Kaufmann's decomposition, with a term for slots in which users are silent."""
    run = begin(label, where)
    run.to(SLOTS)
    mean = np.array(MEANS)
    M, plays, collisions = run.scenario.users, run.tally.plays, run.tally.curves[-len(MEANS) :, -1]
    best = np.argsort(-mean)[:M]
    least = mean[best].min()
    worse = np.setdiff1d(np.arange(len(MEANS)), best)
    regret = ((least - mean) * plays)[worse].sum() + ((mean - least) * (SLOTS - plays))[best].sum()
    regret += (mean * collisions).sum() + least * (M * SLOTS - plays.sum())
    assert run.tally.curves[TABLE, -1] == pytest.approx(regret, abs=1e-8)
    assert collisions.sum() == run.tally.curves[COLLISIONS, -1]


def relabelled(label: str, observes: str, states: int) -> ib.Scenario:
    """Return channels whose bad state is divided into several ones that pay the same."""
    settings = SETTINGS["independent"]
    rows = [[(1 - mean) / (states - 1)] * (states - 1) + [mean] for mean in MEANS]
    users = {**band(label, "independent").to_dict()["users"], "observes": observes}
    return ib.scenario(
        {
            **settings,
            "transition": [[row] * states for row in rows],
            "rewards": [0.0] * (states - 1) + [1.0],
            "users": users,
        }
    )


@pytest.mark.parametrize("observes", ["collisions", "rewards"])
@pytest.mark.parametrize("label", USERS)
def test_hidden_states_change_nothing(label: str, observes: str) -> None:
    """Where users do not observe states, other states with the same rewards give the same plays."""
    knows = USERS[label].policy.knows
    needed = (OWN_STATES_SEEN, COLLISIONS_SEEN) if observes == "rewards" else (OWN_STATES_SEEN,)
    runs = []
    for states in (2, 3):
        scenario = relabelled(label, observes, states)
        if any(word in knows for word in needed):
            with pytest.raises(ib.InputError, match=f"scenario.users.observes = '{observes}': policy .* needs"):
                ib.simulate(scenario, USERS[label], horizon=10)
            return
        run = start_run(scenario, USERS[label], SLOTS, 3, 0)
        assert isinstance(run, UsersRun)
        runs.append((run, picks_of(run, SLOTS)))
    (one, picks), (other, others) = runs
    assert one.path.s.max() <= 1 < 2 in other.path.s  # the states do differ
    assert np.array_equal(picks, others)
    assert np.array_equal(one.tally.curves[0], other.tally.curves[0])


def test_every_policy_meets_every_band_that_it_fits() -> None:
    refused = {(label, where) for label in USERS for where in SETTINGS if not fits(label, where)}
    assert {where for _, where in refused} <= {"rewards alone", "without states"}
    for label, where in refused:
        with pytest.raises(ib.InputError, match=r"scenario\.users\.observes"):
            ib.simulate(band(label, where), USERS[label], horizon=10)


@pytest.mark.parametrize("label", USERS)
def test_users_who_step_an_environment_equal_simulate(label: str) -> None:
    """Users who see what an environment shows earn the same and learn the same states, bit for bit."""
    for where in ("independent", "short stays", "perturbed"):
        if not fits(label, where):
            continue
        scenario, slots = band(label, where), 150
        result = ib.simulate(scenario, USERS[label], horizon=slots, replications=2, seed=3)
        environment, states = step_policy(scenario, USERS[label], slots, seed=3, replication=1)
        assert environment.total_reward == result.reward[1, -1]
        assert environment.user_rewards.tolist() == result.users.reward[1].tolist()
        assert environment.collisions == result.curves["user_collisions"][1, -1]
        run = begin(label, where, slots, replication=1)
        run.to(slots)
        for j, state in states.items():
            for ours, theirs in zip(leaves(state), leaves(run.state[j]), strict=True):
                assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
