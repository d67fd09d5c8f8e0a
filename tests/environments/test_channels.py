"""The environments of Gymnasium: spaces, actions, seeds, episodes, and the vector of copies."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import idleband as ib
from tests.contracts.configurations import EVERY, SCENARIOS

ID = "idleband/Channels-v1"
SOME = (
    "S1",
    "three states, additive",
    "channels come and go",
    "random regimes",
    "shocks, all sensed with errors",
    "replay",
)


def single(scenario: Any = "S1", **settings: Any) -> Any:
    return gymnasium.make(ID, scenario=scenario, **settings).unwrapped


def vector(scenario: Any = "S1", count: int = 3, **settings: Any) -> Any:
    return gymnasium.make_vec(
        ID, num_envs=count, vectorization_mode="vector_entry_point", scenario=scenario, **settings
    ).unwrapped


# --- the checker of Gymnasium, and registration ----------------------------------------------------------------------


@pytest.mark.parametrize("where", SOME)
@pytest.mark.parametrize("actions", ["channels", "scores"])
def test_checker_of_gymnasium_finds_nothing(where: str, actions: str) -> None:
    """Its warnings are errors, as all warnings in these tests."""
    check_env(single(EVERY[where], horizon=50, actions=actions))


@pytest.mark.parametrize(
    "imports",
    [
        "import gymnasium, idleband; name = '{ID}'",
        "import idleband, gymnasium; name = '{ID}'",
        "import gymnasium; name = 'idleband:{ID}'",
        "import idleband, importlib.util; importlib.util.find_spec('gymnasium'); import gymnasium; name = '{ID}'",
    ],
)
def test_environment_is_registered_whatever_is_imported_first(imports: str) -> None:
    code = f"{imports.format(ID=ID)}; print(gymnasium.make(name, scenario='S1').observation_space.shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("(150,)\n", "")


def test_importing_the_package_does_not_load_gymnasium() -> None:
    code = "import sys, idleband; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_missing_gymnasium_is_reported_in_one_line() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "import idleband\n"
        "try:\n    import idleband.environments.channels\n"
        "except idleband.InputError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("idleband/Channels-v1 needs gymnasium; pip install 'idleband[gym]'\n", "")


def test_vector_is_chosen_by_default_and_declares_its_mode() -> None:
    copies = gymnasium.make_vec(ID, num_envs=4, scenario="S1")
    assert type(copies).__name__ == "ChannelsVectorEnv"
    assert copies.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert copies.observation_space.shape == (4, 150)
    assert copies.action_space.shape == (4, 10)
    assert copies.single_action_space == single().action_space
    assert copies.single_observation_space == single().observation_space


# --- episodes --------------------------------------------------------------------------------------------------------


def test_episodes_are_the_sample_paths_of_simulate() -> None:
    """Replications of a seed, one after the other; rewards are those of `Environment`."""
    environment, by_hand = single("S4", horizon=12), ib.Environment("S4", horizon=12)
    action = np.array([1, 0] * 5)
    for replication in range(3):
        _, info = environment.reset(seed=7 if replication == 0 else None)
        assert (info["seed"], info["replication"]) == (7, replication)
        by_hand.reset(seed=7, replication=replication)
        for t in range(1, 13):
            _, reward, terminated, truncated, info = environment.step(action)
            assert reward == by_hand.step([0, 2, 4, 6, 8]).reward
            assert (terminated, truncated) == (False, t == 12)
            assert info["played"].tolist() == action.astype(bool).tolist()


def test_replication_is_chosen_by_an_option() -> None:
    environment = single()
    first = environment.reset(seed=3, options={"replication": 5})[0]
    assert np.array_equal(environment.reset(seed=3, options={"replication": 5})[0], first)
    assert environment.reset()[1]["replication"] == 6
    with pytest.raises(ib.InputError, match=r"^unknown key 'replications' in options: did you mean 'replication'\?"):
        environment.reset(options={"replications": 5})


def test_seeds_are_random_unless_they_are_given() -> None:
    one, two = single(), single()
    assert one.reset()[1]["seed"] != two.reset()[1]["seed"]
    assert np.array_equal(one.reset(seed=2)[0], two.reset(seed=2)[0])
    assert not np.array_equal(one.reset(seed=2)[0], two.reset(seed=3)[0])


def test_default_horizon() -> None:
    assert single()._copies.horizon == 1000
    assert single(EVERY["replay"])._copies.horizon == 90


@pytest.mark.parametrize("make", [single, vector])
def test_wrong_arguments_are_refused(make: Any) -> None:
    for settings, message in (
        ({"actions": "bits"}, "actions = 'bits': must be one of channels, scores"),
        ({"invalid": "skip"}, "invalid = 'skip': must be one of project, error"),
        ({"actions": "scores", "invalid": "error"}, "invalid = 'error': not used where actions are scores"),
        ({"horizon": 0}, "experiment.horizon = 0: must be a whole number from 1 to 10^10"),
    ):
        with pytest.raises(ib.InputError) as refused:
            make(**settings)
        assert str(refused.value).startswith(message)


def test_wrong_steps_are_refused() -> None:
    for environment, action in ((single(horizon=2), [1] * 10), (vector(horizon=2), [[1] * 10] * 3)):
        with pytest.raises(ib.InputError, match=r"^step: the environment has not been started; call reset first$"):
            environment.step(action)
        environment.reset()
        for wrong in (action[:-1], [0.5] * 10, [2] * 10, ["ch1"] * 10, None):
            with pytest.raises(ib.InputError, match=r"^action = .*: must be 10 zeros and ones, one per channel$"):
                environment.step(wrong)
    environment = single(horizon=1)
    environment.reset()
    environment.step([1] * 10)
    with pytest.raises(ib.InputError, match=r"^step: the episode of 1 slots is over; call reset$"):
        environment.step([1] * 10)
    scored = single(actions="scores")
    scored.reset()
    with pytest.raises(ib.InputError, match=r"^action = .*: must be 10 finite numbers, one per channel$"):
        scored.step([np.nan] * 10)
    with pytest.raises(
        ib.InputError, match=r"^render_mode = 'rgb_array': a vector of copies is not drawn; leave it out$"
    ):
        vector(render_mode="rgb_array")
    with pytest.raises(ib.InputError, match=r"^num_envs = 0: must be a whole number from 1 to 1048576$"):
        vector(count=0)


# --- actions ---------------------------------------------------------------------------------------------------------

COMES_AND_GOES = ib.scenario("S1", users=3, availability=[[0, 1] * 5, [0] * 9 + [1]])


@pytest.mark.parametrize(
    ("action", "selected"),
    [
        ([0, 1, 0, 1, 0, 1, 0, 0, 0, 0], [1, 3, 5]),
        ([1] * 10, [1, 3, 5]),  # the lowest available ones
        ([0] * 10, [1, 3, 5]),
        ([0, 0, 0, 0, 0, 0, 0, 0, 1, 1], [1, 3, 9]),  # 8 is not available
    ],
)
def test_channels_are_projected(action: list[int], selected: list[int]) -> None:
    environment = single(COMES_AND_GOES)
    _, info = environment.reset(seed=0)
    assert np.flatnonzero(info["action_mask"]).tolist() == [1, 3, 5, 7, 9]
    info = environment.step(action)[4]
    assert np.flatnonzero(info["played"]).tolist() == selected
    assert np.flatnonzero(info["action_mask"]).tolist() == [9]
    assert np.flatnonzero(environment.step(action)[4]["played"]).tolist() == [9]


def test_invalid_channels_are_refused_if_asked_for() -> None:
    for environment, copies in (
        (single(COMES_AND_GOES, invalid="error"), 1),
        (vector(COMES_AND_GOES, invalid="error"), 3),
    ):
        environment.reset(seed=0)
        right = np.array([0, 1, 0, 1, 0, 1, 0, 0, 0, 0])
        for wrong in ([1] * 10, [0] * 10, [1, 1, 0, 1, 0, 0, 0, 0, 0, 0]):
            actions = np.tile(right, (copies, 1))
            actions[-1] = wrong
            message = r"^action: selects channels \[.*\]; must be 3 channels of \[1, 3, 5, 7, 9\]$"
            with pytest.raises(ib.InputError, match=message):
                environment.step(actions[0] if copies == 1 else actions)
        environment.step(right if copies == 1 else np.tile(right, (copies, 1)))
        with pytest.raises(ib.InputError, match=r"must be 1 channel of \[9\]$"):
            environment.step(right if copies == 1 else np.tile(right, (copies, 1)))


def test_scores_select_the_largest_and_of_equal_ones_the_lowest() -> None:
    environment = single(actions="scores")
    environment.reset(seed=0)
    for scores in (
        [0.0] * 10,
        [0.1, 0.9, -0.3, 0.9, 0.9, 0.2, 0.9, 0.1, 1.0, 0.9],
        np.linspace(-1, 1, 10, dtype=np.float32),
    ):
        played = environment.step(scores)[4]["played"]
        best = sorted(sorted(range(10), key=lambda k: (-scores[k], k))[:5])
        assert np.flatnonzero(played).tolist() == best


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", EVERY)
@pytest.mark.parametrize("actions", ["channels", "scores"])
def test_vector_equals_single_environments(where: str, actions: str) -> None:
    """Observations, rewards and infos, bit for bit, over three episodes: copy i plays replications i, i + N, ..."""
    if actions == "scores" and where not in SOME:
        return
    N, horizon = 3, 7
    copies = vector(EVERY[where], N, horizon=horizon, actions=actions)
    ones = [single(EVERY[where], horizon=horizon, actions=actions) for _ in range(N)]
    copies.action_space.seed(1)
    observations, infos = copies.reset(seed=11)
    for episode in range(3):
        for i, one in enumerate(ones):
            observation, info = one.reset(seed=11, options={"replication": i + N * episode})
            assert np.array_equal(observations[i], observation)
            same_infos(infos, info, i)
        for t in range(1, horizon + 1):
            given = copies.action_space.sample()
            observations, rewards, terminations, truncations, infos = copies.step(given)
            for i, one in enumerate(ones):
                observation, reward, terminated, truncated, info = one.step(given[i])
                assert np.array_equal(observations[i], observation)
                assert observations[i] in copies.single_observation_space
                assert (rewards[i], terminations[i], truncations[i]) == (reward, terminated, truncated)
                assert truncated == (t == horizon)
                same_infos(infos, info, i)
        observations, rewards, terminations, truncations, infos = copies.step(given)  # the next episodes start
        assert not np.any([rewards, terminations, truncations])


def same_infos(infos: dict[str, Any], info: dict[str, Any], i: int) -> None:
    assert {name for name in infos if not name.startswith("_")} == set(info)
    for name, value in info.items():
        assert infos[f"_{name}"].all()
        assert np.array_equal(infos[name][i], value), name


def test_vector_continues_with_the_next_replications() -> None:
    copies = vector(count=4, horizon=5)
    assert copies.reset(seed=2)[1]["replication"].tolist() == [0, 1, 2, 3]
    assert copies.reset()[1]["replication"].tolist() == [4, 5, 6, 7]
    infos = copies.reset(seed=2, options={"replication": 10})[1]
    assert (infos["replication"].tolist(), infos["seed"].tolist()) == ([10, 11, 12, 13], [2] * 4)
    with pytest.raises(ib.InputError, match=r"^replication = 999998: a seed has replications from 0 to 999999$"):
        copies.reset(options={"replication": 999_998})


def test_sync_vector_of_gymnasium_works() -> None:
    copies = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="sync", scenario="S1", horizon=4)
    observations, _ = copies.reset(seed=1)
    ones = [single(horizon=4).reset(seed=seed)[0] for seed in (1, 2)]
    assert np.array_equal(observations, np.stack(ones))
    for _ in range(6):
        copies.step(copies.action_space.sample())


def test_machine_code_does_not_depend_on_the_number_of_copies() -> None:
    one, many = vector(count=2), vector(count=50)
    assert one._copies._step.__name__ == many._copies._step.__name__
    for copies in (one, many):
        copies.reset(seed=0)
        copies.step(copies.action_space.sample())


def test_what_was_returned_does_not_change_later() -> None:
    copies = vector(count=2)
    observations, infos = copies.reset(seed=0)
    kept = observations.copy(), infos["action_mask"].copy()
    after = [copies.step(copies.action_space.sample()) for _ in range(2)]
    assert np.array_equal(observations, kept[0])
    assert np.array_equal(infos["action_mask"], kept[1])
    assert not np.array_equal(after[0][0], after[1][0])


def test_every_preset_has_an_environment() -> None:
    for name in ("S1", "S2", "S3", "S4"):
        assert single(name).observation_space.shape == (15 * SCENARIOS[name].K,)
