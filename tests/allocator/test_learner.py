"""Learners: the arrays of the state, and users' policies compiled, interpreted and with other kinds of state."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import idleband as ib
from idleband.allocator.learner import Learner, leaves
from idleband.allocator.settings import Settings

SIZE: dict[str, Any] = {"channels": 4, "users": 2, "dimension": 2}


def learner(policy: Any, **parameters: Any) -> Learner:
    settings = Settings.checked({"policy": policy, **SIZE, **parameters})
    return Learner(settings.configured, settings.setup, None, settings.seed, settings.replication)


class Inner(NamedTuple):
    a: Any
    b: Any


def test_arrays_in_nested_tuples_are_named_by_their_path() -> None:
    one, two = np.zeros(1), np.zeros(2)
    found = dict(leaves("state", Inner(one, (Inner(3, two), 2.5, "word", None)), "policy x"))
    assert found == {"state.a": one, "state.b.0.b": two}
    assert dict(leaves("state", (), "policy x")) == {}
    for strange in ({}, [1.0], np.array([None]), object(), {1}):
        with pytest.raises(ib.InputError, match=r"^policy x: state\.a is a \w+; must be an array to be saved"):
            list(leaves("state", Inner(strange, one), "policy x"))


def test_random_stream_indices_and_state_of_a_policy_are_saved() -> None:
    assert [name for name, _ in learner("mp-ucb").arrays()] == ["rng", "indices", "state.total", "state.plays"]


def test_nan_is_found_in_every_array_of_the_state() -> None:
    for place in range(8):
        lucb = learner("mp-lucb")
        assert lucb.finite()
        floats = [array for _, array in lucb.arrays() if array.dtype == np.float64]
        if place < len(floats):
            floats[place].flat[-1] = np.nan
            assert not lucb.finite()
    ucb = learner("mp-ucb")
    ucb.workspace.indices[0] = np.inf  # untried
    assert ucb.finite()


class Counts:
    """Select the channels with the fewest reports."""

    def init(setup: Any) -> Any:
        return (np.zeros(setup.K),)

    def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
        for k in range(setup.K):
            slot.indices[k] = -state[0][k]
        return ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)

    def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
        state[0][feedback.channel] += 1.0


def interpreted(how: str) -> type:
    """Return the same policy in a form that cannot be compiled: an object in a function, or a dictionary as state."""

    class Same:
        def init(setup: Any) -> Any:
            return {0: np.zeros(setup.K)} if how == "memory" else (np.zeros(setup.K),)

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            if how != "learning":
                object()
            for k in range(setup.K):
                slot.indices[k] = -state[0][k]
            return ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            object()
            state[0][feedback.channel] += 1.0

    return ib.register(name="same")(Same)


def driven(allocator: ib.Allocator) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    assigned = []
    for _ in range(30):
        decision = allocator.decide(rng.random((4, 2)), int(rng.integers(3)), rng.random(4) < 0.7)
        allocator.report(decision.request_id, [1.0] * len(decision.channels))
        assigned.append(decision.channels)
    return assigned


def test_a_user_policy_decides_the_same_compiled_and_interpreted() -> None:
    compiled = ib.Allocator(ib.register(name="counts")(Counts), **SIZE)
    assert compiled._core.supervisor.learner.interpreted_because == ""
    expected = driven(compiled)
    for how in ("choosing", "learning", "memory"):
        same = ib.Allocator(interpreted(how), **SIZE)
        assert same._core.supervisor.learner.interpreted_because  # it is not compiled
        assert driven(same) == expected
        assert np.array_equal(same._core.supervisor.learner.state[0], compiled._core.supervisor.learner.state[0])


def test_an_exception_in_init_names_the_policy() -> None:
    @ib.register(name="fails")
    class Fails:
        def init(setup: Any) -> Any:
            raise ZeroDivisionError("nothing")

        select, update = Counts.select, Counts.update

    with pytest.raises(ib.InputError, match=r"^policy fails: ZeroDivisionError: nothing"):
        ib.Allocator(Fails, **SIZE)


def test_setup_m_is_the_number_of_users_of_the_slot() -> None:
    """RCA keeps that many blocks."""
    allocator = ib.Allocator("rca-m", **{**SIZE, "users": 4})
    for users in (4, 1, 3, 0, 2):
        assert len(allocator.decide(None, users).channels) == users
