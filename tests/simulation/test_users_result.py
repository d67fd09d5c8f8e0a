"""Results by user: fairness, the regret divided by its causes, storage."""

from pathlib import Path

import numpy as np
import pytest

import idleband as ib

# Independent slots: the next state does not depend on the last one.
MEANS = np.arange(1, 6) / 6
INDEPENDENT = ib.scenario(
    p01=MEANS.tolist(), p10=(1 - MEANS).tolist(), rewards=[[0, 1]] * 5, reward="additive", perturbation="none",
    users={"count": 2, "coordination": "none"},
)  # fmt: skip


@pytest.mark.parametrize("policy", ["user-random", "lbt-sticky", "selfish-klucb", "mctopm"])
def test_the_terms_of_the_regret_add_up(policy: str) -> None:
    result = ib.simulate(INDEPENDENT, policy, horizon=3000, replications=3)
    terms = result.users.regret_terms()
    assert set(terms) == {"suboptimal", "missed", "collisions", "silence"}
    assert sum(terms.values()) == pytest.approx(result.regret("table")[:, -1])
    assert (terms["silence"] >= 0).all()
    assert (terms["silence"] > 0).all() == (policy == "lbt-sticky")


@pytest.mark.parametrize(
    ("users", "named"),
    [
        ({"collision": "split"}, "collision = 'split'"),
        ({"quality": [[1] * 5] * 2}, "quality"),
        ({"spread": 5}, "arrivals"),
    ],
)
def test_the_regret_is_only_divided_where_that_is_defined(users: dict[str, object], named: str) -> None:
    result = ib.simulate(ib.scenario(INDEPENDENT, users=users), "mctopm", horizon=50, replications=1)
    with pytest.raises(ib.InputError, match=f"cannot be divided with {named}"):
        result.users.regret_terms()


def test_jain_is_one_for_equal_rewards() -> None:
    result = ib.simulate(INDEPENDENT, "user-random", horizon=3000, replications=2)
    users = result.users
    assert users.reward.sum(axis=1) == pytest.approx(result.reward[:, -1])
    x = users.reward
    assert users.jain == pytest.approx(x.sum(axis=1) ** 2 / (2 * (x * x).sum(axis=1)))
    assert (users.jain > 0.99).all()
    alone = ib.simulate(ib.scenario(INDEPENDENT, users=1), "user-random", horizon=30, replications=1)
    assert alone.users.jain.tolist() == [1.0]


def test_results_are_stored_and_resumed(tmp_path: Path) -> None:
    policies = ["mctopm", "mp-ucb"]
    first = ib.compare(INDEPENDENT, policies, horizon=200, replications=2, out=tmp_path)
    again = ib.load(tmp_path)
    more = ib.compare(INDEPENDENT, policies, horizon=200, replications=3, out=tmp_path)
    for study in (first, again, more):
        result = study["mctopm"]
        assert np.array_equal(result.users.reward[:2], first["mctopm"].users.reward)
        assert np.array_equal(result.users.collisions[:2], first["mctopm"].users.collisions)
        assert np.isnan(study["mp-ucb"].curves["switches"]).all()
        assert study["mp-ucb"].channel_collisions is None
        assert "reward_user_1" in study.table(full=True)
    assert again.scenario == INDEPENDENT


def test_equal_seeds_give_equal_users_whatever_the_threads() -> None:
    one, two = (ib.simulate(INDEPENDENT, "mctopm", horizon=300, replications=4, threads=n) for n in (1, 2))
    assert np.array_equal(one.users.reward, two.users.reward)


def test_every_slot_of_users_is_recorded() -> None:
    result = ib.simulate(INDEPENDENT, "lbt-sticky", horizon=300, replications=2, record="slots")
    slots = result.slots
    assert slots is not None
    assert slots.groupby("replication").users.sum().tolist() == result.plays.sum(axis=1).tolist()
    colliding = slots.users.where(slots.users > 1, 0).groupby([slots.replication, slots.channel]).sum()
    assert colliding.to_numpy().reshape(2, 5).tolist() == result.users.collisions.tolist()
    assert slots.groupby("replication").reward.sum().to_numpy() == pytest.approx(result.reward[:, -1])
    assert (slots.picked == (slots.users > 0)).all()
    alone = slots[slots.users == 1]
    assert np.allclose(alone.reward, alone.state)  # bad pays 0, good pays 1
