"""Perturbation models of users: loading, drawing, binding into the loops, sampling and refusals."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idleband as ib
from idleband.kernels.rng import PERTURBATION, stream, uniform
from idleband.reporting.card import card, card_text
from idleband.scenario.halfspace_volume import SAMPLES
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.user_models import UserModel
from idleband.simulation.run import PolicyRun, ReferenceRun
from tests.conftest import ROOT
from tests.own_model import LOUD

Floats = npt.NDArray[np.float64]
THETA = [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197]
SIZE: dict[str, Any] = {"horizon": 300, "replications": 2}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with a perturbation model."""
    path = tmp_path / "mine.py"
    path.write_text(LOUD)
    return path


def given(rng: Any, dimension: int, clear: float) -> list[float]:
    """Draw a theta whose value is not checked."""
    return [clear]


def register(name: str, value: Callable[..., Any], draw: Callable[..., Any] = given, **more: Any) -> str:
    """Register a model under a name, and return the name."""
    ib.register_perturbation(name=name)(type("Own", (), {"draw": draw, "value": value, **more}))
    return name


def refused(perturbation: Any, **changes: Any) -> str:
    """Return the message, one line, with which a model is refused when its scenario is built or its theta is drawn."""
    with pytest.raises(ib.InputError) as caught:
        ib.scenario("S1", perturbation=perturbation, **changes).theta(0, 0)
    message = str(caught.value)
    assert message.splitlines() == [message]
    return message


def earned(scenario: ib.Scenario) -> Floats:
    """Return the rewards of mp-random, without the references that `simulate` would compile for the model as well."""
    run = PolicyRun.start(scenario, ib.policy("mp-random"), SIZE["horizon"], seed=0, replication=0)
    run.to(SIZE["horizon"])
    return run.tally.curves[0]


# --- sources of models ----------------------------------------------------------------------------------------------


def test_every_source_gives_the_same_model(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "mine.toml").write_text('[scenario]\nbase = "S1"\nperturbation = { kind = "mine.py:loud" }\n')
    (file.parent / "short.toml").write_text('[scenario]\nbase = "S1"\nperturbation = "mine.py:Loud"\n')
    first = ib.scenario("S1", perturbation=f"{file}:loud")
    others = [
        ib.scenario("S1", perturbation={"kind": f"{file}:loud", "clear": 0.7}),
        ib.scenario({"base": "S1", "perturbation": {"kind": f"{file}:Loud"}}),
        ib.scenario(file.parent / "mine.toml"),  # in any current folder
        ib.scenario(str(file.parent / "short.toml"), users=5),
        ib.scenario(first),
        ib.scenario(first.to_dict()),
    ]
    monkeypatch.chdir(file.parent)
    others += [ib.scenario("mine.toml"), ib.scenario("S1", perturbation="mine.py:loud")]
    for other in others:
        assert other == first
        assert hash(other) == hash(first)
    assert first.to_dict()["perturbation"] == {"kind": f"{file}:loud", "clear": 0.7, "per_channel": False}
    assert first.perturbation.kind == "loud"


def test_registered_class_is_accepted_by_name_and_as_a_class() -> None:
    @ib.register_perturbation
    class Mine:
        """A constant.

        Further text.
        """

        def draw(rng, dimension, clear):  # type: ignore[no-untyped-def]
            return [clear]

        @staticmethod
        def value(theta, x):  # type: ignore[no-untyped-def]
            return theta[0]

    named = ib.scenario("S1", perturbation="Mine")
    assert named == ib.scenario("S1", perturbation=Mine) == ib.scenario("S1", perturbation={"kind": Mine})
    assert named != ib.scenario("S1")
    assert ib.scenario(named.to_dict()) == named
    assert named.perturbation.model.formula == "A constant."


def test_models_of_files_and_registered_models_do_not_share_names(file: Path) -> None:
    """A model from a file is not found by its name alone, and does not replace a registered one."""
    register("loud", lambda theta, x: 0.5)
    registered = PERTURBATION_MODELS["loud"]
    found = ib.scenario("S1", perturbation=f"{file}:loud").perturbation.model
    assert ib.scenario("S1", perturbation="loud").perturbation.model is registered
    assert found != registered


def test_edited_file_is_a_different_model(file: Path) -> None:
    before = ib.scenario("S1", perturbation=f"{file}:loud")
    first = earned(before)
    file.write_text(LOUD.replace("+ theta[1]", "- theta[1]"))
    after = ib.scenario("S1", perturbation=f"{file}:loud")
    assert before != after
    assert earned(after)[-1] > first[-1]  # the perturbation is smaller now
    again = ib.scenario(before, users=5)  # an existing scenario keeps its model
    assert again == before
    assert np.array_equal(earned(again), first)


def test_cell_entered_again_is_a_different_model() -> None:
    """A cell of an interactive session may depend on earlier cells, so no compiled code is reused."""
    rewards = []
    for shift in (0.0, 0.3):
        cell = LOUD.replace("+ theta[1]", "+ SHIFT").replace(
            "import idleband as ib", f"import idleband as ib\nSHIFT={shift}"
        )
        exec(compile(cell, "<cell>", "exec"), {"__name__": "cell"})
        rewards.append(earned(ib.scenario("S1", perturbation="loud"))[-1])
    assert rewards[0] > rewards[1]


# --- theta and values -------------------------------------------------------------------------------------------------


def test_theta_is_drawn_from_the_stream_of_perturbations(file: Path) -> None:
    settings = {"kind": f"{file}:loud", "clear": 0.5, "per_channel": True}
    theta = ib.scenario("S1", context={"dimension": 3}, perturbation=settings).theta(4, 2)
    rng = stream(4, 2, PERTURBATION)
    assert theta.tolist() == [[0.5 ** (-1 / 3), 0.1 * uniform(rng)] for _ in range(10)]
    assert theta.flags.writeable
    one = ib.scenario("S1", perturbation={**settings, "per_channel": False}).theta(4, 2)
    assert len(np.unique(one, axis=0)) == 1
    fixed = ib.scenario("S1", perturbation={"kind": f"{file}:loud", "theta": [1.5, -0.25]})
    assert fixed.theta(7, 7).tolist() == [[1.5, -0.25]] * 10


@pytest.mark.parametrize("reward", ["threshold", "additive"])
def test_perturbations_equal_the_value_of_theta_and_context(file: Path, reward: str) -> None:
    scenario = ib.scenario("S2", reward=reward, perturbation={"kind": f"{file}:loud", "per_channel": True})
    slots = ib.simulate(scenario, "mp-random", **SIZE, record="slots").slots
    assert slots is not None
    x = slots[[f"x{i}" for i in range(8)]].to_numpy().reshape(2, 300, 10, 8)
    n = slots["perturbation"].to_numpy().reshape(2, 300, 10)
    for i in range(2):
        theta = scenario.theta(0, i)
        np.testing.assert_allclose(n[i], theta[:, 0] * x[i].max(axis=2) + theta[:, 1], rtol=1e-14)
    low, high = scenario.reward_range()
    assert (low, high) == ((0.1, 1.0) if reward == "threshold" else (0.1 - 4.0, 1.0))
    assert slots["reward"].dropna().between(low, high).all()


def line(theta: Floats, x: Floats) -> float:
    value = 0.0
    for i in range(x.size):
        value += theta[i] * x[i]
    return value


def allocating_line(theta: Floats, x: Floats) -> float:
    products = theta * x
    value = 0.0
    for i in range(x.size):
        value += products[i]
    return value


@pytest.mark.parametrize(("value", "policy"), [(line, "rca-m"), (allocating_line, "mp-random")])
def test_linear_model_of_a_user_gives_the_results_of_the_built_in_one(value: Callable[..., float], policy: str) -> None:
    """It is bound into the loops of policies and references, whether it allocates or not."""
    name = register("line", value, lambda rng, dimension, clear: [clear] * dimension)
    scenarios = [ib.scenario("S4", perturbation={"kind": kind, "theta": THETA}) for kind in ("linear", name)]
    model = scenarios[1].perturbation.model
    assert isinstance(model, UserModel)
    assert model.kernel.allocates == (value is allocating_line)
    theirs, mine = (ib.simulate(scenario, policy, **SIZE) for scenario in scenarios)
    assert np.array_equal(theirs.plays, mine.plays)
    for column in ("reward", "regret_genie", "regret_contextual", "regret_table", "collisions"):
        assert np.array_equal(theirs.curves[column], mine.curves[column]), column
    slots = SIZE["horizon"]
    error = scenarios[1].mean_rewards(scenarios[1].theta(0, 0))[1]
    assert error > 0
    gap = np.abs(theirs.regret("static")[:, -1] - mine.regret("static")[:, -1])
    assert (gap <= 5 * 5 * error * slots).all()  # five standard errors for each of five channels


def test_probabilities_and_means_come_from_a_sample_with_a_standard_error() -> None:
    name = register("line", line, lambda rng, dimension, clear: [clear] * dimension, bounds=(0, 8))
    settings = {"theta": [THETA] + [[0.2] * 8] * 9}
    exact, sampled = (ib.scenario("S1", perturbation={"kind": kind, **settings}) for kind in ("linear", name))
    theta = sampled.theta(0, 0)
    for level in (0.0, 0.4, 1.0):
        p, error = exact.probabilities_below(theta, level)[0], sampled.probabilities_below(theta, level)[1]
        found = sampled.probabilities_below(theta, level)[0]
        assert np.all(np.abs(found - p) <= 5 * np.sqrt(np.maximum(p * (1 - p), 1e-6) / SAMPLES))
        assert error == pytest.approx(np.sqrt(np.maximum(found * (1 - found), 1e-6) / SAMPLES).max())
    for reward in ("threshold", "additive"):
        mu = ib.scenario(exact, reward=reward).mean_rewards(theta)[0]
        found, error = ib.scenario(sampled, reward=reward).mean_rewards(theta)
        assert np.all(np.abs(found - mu) < 5 * error)
        assert 0 < error < 0.001


def test_card_shows_the_model_and_the_standard_error(file: Path) -> None:
    text = card_text(card(ib.scenario("S1", perturbation=f"{file}:loud")))
    words = " ".join(text.split())
    assert "perturbation loud: n = s max(x_1, ..., x_d) + t; clear = 0.7" in words
    assert "from a sample" in words
    assert "standard error 0.0005" in words
    json.dumps(card(ib.scenario("S1", perturbation=f"{file}:loud")), allow_nan=False)


# --- compiled, interpreted and on CUDA --------------------------------------------------------------------------------

DIGEST = """
import json, sys
import idleband as ib
from idleband.simulation.run import PolicyRun, ReferenceRun, _references_loop
scenario = ib.scenario("S1", users=3, perturbation=sys.argv[1] + ":loud")
model = scenario.perturbation.model
ucb = ib.policy("mp-ucb")
if sys.argv[2] == "cuda":
    from idleband.simulation.gpu.replications import Simulation
    ((_, batch),) = Simulation(scenario, ucb, 20, seed=3).run(range(2), lambda slots: None)
    print(json.dumps({"plays": batch.plays.tolist(), "curves": batch.curves.tolist()}))
else:
    run, walk = PolicyRun.start(scenario, ucb, 100, 3, 0), ReferenceRun.start(scenario, 100, 3, 0)
    run.to(100)
    walk.to(100)
    curves = [run.tally.curves.tolist(), walk.references.curves.tolist()]
    counts = [
        [sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())]
        for kernel in (run.kernel.run, _references_loop(model), model.kernel.alone)
        if hasattr(kernel, "stats")
    ]
    print(json.dumps({"plays": run.tally.plays.tolist(), "curves": curves, "counts": counts}))
"""


def digest(file: Path, how: str, **environment: str) -> dict[str, Any]:
    """Return the results of a run in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", DIGEST, str(file), how],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return dict(json.loads(done.stdout))


def test_compiled_equals_interpreted_and_is_cached_by_source(file: Path, tmp_path: Path) -> None:
    cache = {"IDLEBAND_CACHE_DIR": str(tmp_path / "cache")}
    first, second = digest(file, "cpu", **cache), digest(file, "cpu", **cache)
    assert first.pop("counts") == [[0, 1]] * 3
    assert second.pop("counts") == [[1, 0]] * 3  # compiled once, then loaded from the cache
    assert first == second
    interpreted = digest(file, "cpu", **cache, NUMBA_DISABLE_JIT="1")
    assert interpreted.pop("counts") == []
    assert interpreted == first
    file.write_text(LOUD.replace("+ theta[1]", "+ theta[1] + 0.2"))
    edited = digest(file, "cpu", **cache)
    assert edited.pop("counts") == [[0, 1]] * 3
    assert edited != first


def test_simulated_cuda_kernel_gives_the_same_results(file: Path) -> None:
    found = digest(file, "cuda", NUMBA_DISABLE_JIT="1", NUMBA_ENABLE_CUDASIM="1")
    scenario = ib.scenario("S1", users=3, perturbation=f"{file}:loud")
    for replication in range(2):
        run = PolicyRun.start(scenario, ib.policy("mp-ucb"), 20, seed=3, replication=replication)
        run.to(20)
        assert found["plays"][replication] == run.tally.plays.tolist()
        assert found["curves"][replication] == run.tally.curves.tolist()


# --- invalid values --------------------------------------------------------------------------------------------------


def trapped(slot: int, channel: int, *values: float, **more: Any) -> list[ib.Scenario]:
    """Return scenarios with one model, compiled once: it returns one of the values in one slot of replication 0 on one
    channel, and 0.5 elsewhere."""
    slots = ib.simulate("S1", "mp-random", horizon=slot, replications=1, record="slots").slots
    assert slots is not None
    there = slots.query(f"t == {slot} and channel == {channel}")["x0"].item()
    register("trap", lambda theta, x: values[int(theta[0])] if x[0] == there else 0.5, **more)
    return [ib.scenario("S1", perturbation={"kind": "trap", "theta": [float(i)]}) for i in range(len(values))]


def test_values_that_are_not_finite_are_reported_with_slot_and_channel() -> None:
    values = (math.nan, -math.inf, 1e101)
    for value, scenario in zip(values, trapped(17, 3, *values), strict=True):
        expected = f"perturbation model trap: value = {value:g} in slot 17, channel 3 (ch4); must be a finite number"
        policy = PolicyRun.start(scenario, ib.policy("mp-random"), 100, 0, 0)
        for run in (policy, ReferenceRun.start(scenario, 100, 0, 0)):
            run.to(16)
            with pytest.raises(ib.InputError) as caught:
                run.to(17)
            assert str(caught.value) == expected
            assert run.path.n[3] == 0  # the invalid value is not passed to the policy
        with pytest.raises(ib.InputError) as caught:
            ib.simulate(scenario, "mp-random", horizon=50, replications=2)
        assert str(caught.value) == expected


def test_values_beyond_the_bounds_are_reported_with_slot_and_channel() -> None:
    values = (0.9, -0.1, 0.5 + 1e-12)  # the last is within the tolerance for rounding
    for value, scenario in zip(values, trapped(9, 0, *values, bounds=(0.0, 0.5)), strict=True):
        run = ReferenceRun.start(ib.scenario(scenario, reward="additive"), 20, 0, 0)
        if value == values[-1]:
            run.to(20)
            continue
        with pytest.raises(ib.InputError) as caught:
            run.to(20)
        expected = (
            f"perturbation model trap: value = {value:g} in slot 9, channel 0 (ch1); must be within bounds = (0, 0.5)"
        )
        assert str(caught.value) == expected


def test_frequent_invalid_values_are_reported_before_the_first_slot() -> None:
    register("roots", lambda theta, x: math.sqrt(x[0] - theta[0]) if x[0] < 2 else 0.0)
    scenario = ib.scenario("S1", context={"dimension": 2}, perturbation="roots")
    with pytest.raises(ib.InputError) as caught:
        ib.simulate(scenario, "mp-random", **SIZE)
    assert str(caught.value).startswith("perturbation model roots: value = nan where theta = [0.7] and x = [0.")
    assert str(caught.value).endswith("]; must be a finite number")


def test_exceptions_of_a_model_are_reported_with_file_and_line() -> None:
    def value(theta: Floats, x: Floats) -> float:
        if x[0] >= theta[0]:
            raise ValueError("too much")
        return 0.0

    scenario = ib.scenario("S1", perturbation=register("often", value))
    with pytest.raises(
        ib.InputError,
        match=r"^perturbation model often: value: ValueError: too much \(.*test_user_models\.py, line \d+\)$",
    ):
        ib.simulate(scenario, "mp-random", **SIZE)
    name = register("rare", value, lambda rng, dimension, clear: [1 - 1e-7])  # too rare to occur in the sample
    scenario = ib.scenario("S1", perturbation=name)
    run = PolicyRun.start(scenario, ib.policy("mp-random"), 10**8, 0, 0)
    with pytest.raises(
        ib.InputError,
        match=r"^perturbation model rare: value: ValueError: too much \(.*test_user_models\.py, line \d+\)$",
    ):
        run.to(10**8)


def test_user_policy_and_user_model_in_one_run(file: Path) -> None:
    """Errors name the policy or the model that raised them, also if both come from one file."""
    policy = '''
@ib.register
class {name}:
    """The first M channels."""
    def init(setup):
        return {{}}
    def select(setup, state, slot, picks):
        picks[: setup.M] = range(setup.M)
        return setup.M
    def update(setup, state, slot, feedback):
        {update}
'''
    failing, working = policy.format(name="Failing", update="state['gone']"), policy.format(name="First", update="pass")
    file.write_text(LOUD + failing + working)
    scenario = ib.scenario("S1", perturbation=f"{file}:loud")
    with pytest.raises(ib.InputError, match=rf"^policy Failing: KeyError: 'gone' \({file}, line \d+\)$"):
        ib.simulate(scenario, f"{file}:Failing", **SIZE)
    result = ib.simulate(scenario, f"{file}:First", **SIZE)
    assert "dict" in result.note  # the policy ran interpreted, the model did not
    assert result.plays[0].tolist() == [300] * 5 + [0] * 5


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "name", "expected"),
    [
        ({}, "a", "model a: draw is missing; a perturbation model has draw and value"),
        ({"draw": given}, "a", "model a: value is missing; a perturbation model has draw and value"),
        ({"draw": given, "value": 1.0}, "a", "model a: value is missing"),
        ({"draw": lambda rng: [1.0], "value": line}, "a", "model a: draw must take (rng, dimension, clear)"),
        ({"draw": given, "value": lambda x: 0.0}, "a", "model a: value must take (theta, x)"),
        ({"draw": given, "value": line}, "cosine", "model cosine: this name is taken by a model of the package"),
        ({"draw": given, "value": line}, "a/b", "model = 'a/b': must be 1 to 80 letters"),
        ({"draw": given, "value": line, "bounds": 1.0}, "a", "model a: bounds = 1.0: must be a list, the smallest"),
        ({"draw": given, "value": line, "bounds": (1.0,)}, "a", "model a: bounds = (1.0,): must be two numbers"),
        ({"draw": given, "value": line, "bounds": (2, 1)}, "a", "model a: bounds = 1: must be a number of at least 2"),
        ({"draw": given, "value": line, "bounds": (0, math.inf)}, "a", "model a: bounds = inf: must be a number"),
    ],
)  # fmt: skip
def test_invalid_model_is_not_registered(members: dict[str, Any], name: str, expected: str) -> None:
    before = dict(PERTURBATION_MODELS)
    with pytest.raises(ib.InputError) as caught:
        ib.register_perturbation(name=name)(type("Own", (), members))
    assert expected in str(caught.value)
    assert before == PERTURBATION_MODELS


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (
            lambda rng, d, clear: [1.0, math.nan],
            "perturbation model own: draw, entry 2 = nan: must be a number of at least -1e+100",
        ),
        (lambda rng, d, clear: [math.inf], "perturbation model own: draw, entry 1 = inf: must be a number"),
        (lambda rng, d, clear: ["a"], "perturbation model own: draw, entry 1 = 'a': must be a number"),
        (
            lambda rng, d, clear: np.ones((2, 2)),
            "perturbation model own: draw, entry 1 = array([1., 1.]): must be a number",
        ),
        (lambda rng, d, clear: 1.0, "perturbation model own: draw = 1.0: must be a list, of numbers"),
        (lambda rng, d, clear: None, "perturbation model own: draw = None: must be a list, of numbers"),
        (lambda rng, d, clear: [], "perturbation model own: draw = []: must be a list of at least one number"),
        (
            lambda rng, d, clear: [1.0] * (1 + int(8 * ib.random.uniform(rng))),
            "must be as many every time in 8 dimensions",
        ),
        (lambda rng, d, clear: [1 / 0], "perturbation model own: draw: ZeroDivisionError: division by zero ("),
    ],
)
def test_invalid_draw_is_refused(drawn: Callable[..., Any], expected: str) -> None:
    assert expected in refused({"kind": register("own", line, drawn), "per_channel": True})


def test_invalid_settings_are_refused(file: Path) -> None:
    loud = f"{file}:loud"
    assert "perturbation model loud: bounds is missing; the additive reward needs" in refused(
        register("loud", line), reward="additive"
    )
    where = "scenario.perturbation"
    for settings, expected in (
        ({"theta_norm": 0.5}, f"{where}.theta_norm: only for the linear model; the loud model takes clear or theta"),
        (
            {"theta": [1.0]},
            f"{where}.theta: has 1 entry; must be 2, for n = s max(x_1, ..., x_d) + t in 8 dimensions",
        ),
        ({"theta": [[1.0, 2.0]] * 3}, f"{where}.theta: has 3 lists; must be one, or one for each of 10 channels"),
        ({"theta": [1.0, math.nan]}, f"{where}.theta = nan: must be a number"),
        ({"clear": 0.0}, f"{where}.clear = 0.0: must be a number above 0 and at most 1"),
        ({"per_channel": "yes"}, f"{where}.per_channel = 'yes': must be true or false"),
    ):
        assert expected in refused({"kind": loud, **settings})


def test_missing_models_are_refused(file: Path) -> None:
    kind = "scenario.perturbation.kind"
    register("bumps", line)
    assert refused("bump") == f"unknown {kind} 'bump': did you mean 'bumps'? known: {', '.join(PERTURBATION_MODELS)}"
    assert f"perturbation model 'lout' in {file}: did you mean 'loud'?" in refused(f"{file}:lout")
    assert refused(f"{file.parent}/none.py:loud") == f"{file.parent}/none.py: No such file or directory"
    assert refused("mine.py") == f"{kind} = 'mine.py': must also name a model in the file: mine.py:NAME"
    assert f"{kind} = 5: must be a name, file.py:name, or a class under" in refused({"kind": 5})
    assert refused(dict) == "perturbation model dict: put @idleband.register_perturbation above the class"
    file.write_text("x = 1\n")
    assert refused(f"{file}:loud") == f"{file}: holds no class under @idleband.register_perturbation"
    file.write_text("1 / 0\n")
    assert f"{file}: cannot be imported: ZeroDivisionError" in refused(f"{file}:loud")


@pytest.mark.parametrize(
    "value",
    [lambda theta, x: object(), lambda theta, x: "n", lambda theta, x: None, lambda theta, x: x, lambda theta, x: y],  # noqa: F821
    ids=["object", "text", "nothing", "array", "unknown name"],
)
def test_value_that_does_not_compile_is_refused(value: Callable[..., Any]) -> None:
    scenario = ib.scenario("S1", perturbation=register("odd", value))
    with pytest.raises(ib.InputError) as caught:
        ib.simulate(scenario, "mp-random", **SIZE)
    assert str(caught.value).startswith("perturbation model odd: value does not compile: ")
    assert "\n" not in str(caught.value)


def test_example_file_has_the_requested_success_probability_and_range() -> None:
    scenario = ib.scenario("S1", reward="additive", perturbation=f"{ROOT}/examples/own_model.py:loudest")
    probabilities, error = scenario.probabilities_below(scenario.theta(0, 0), 1.0)
    assert np.abs(probabilities - 0.7).max() < 5 * error
    assert scenario.reward_range() == (0.1 - 2.0, 1.0)
