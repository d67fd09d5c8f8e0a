"""Scenarios and policies as bytes, with the code of users."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.cluster.packing import pack, unpack
from idleband.errors import InputError
from idleband.policies.registry import all_policies
from idleband.scenario.user_models import UserModel
from tests.own_policy import MINE


def test_every_policy_of_the_package_is_found_again_by_name() -> None:
    for one in [found for found in all_policies().values() if found.source is None]:
        configured = ib.policy(one)
        again = unpack(pack(configured))
        assert again == configured
        assert again.policy.select is configured.policy.select
        assert again.params == configured.params


def test_scenario_is_the_same_and_unpacked_once() -> None:
    scenario = ib.scenario("S4", perturbation={"kind": "cosine", "clear": 0.6})
    packed = pack(scenario)
    assert packed == pack(scenario)
    assert len(packed.data) < 10_000
    again = unpack(packed)
    assert again is unpack(packed)
    assert again.identity() == scenario.identity()
    assert again.theta(3, 4).tobytes() == scenario.theta(3, 4).tobytes()


def test_trace_travels_without_what_was_derived_from_it() -> None:
    trace = ib.Trace.from_arrays(busy=np.random.default_rng(1).random((5000, 8)) < 0.3)
    scenario = ib.scenario(trace, users=2)
    assert scenario.recording is not None
    assert scenario.recording.idle.shape == (5000, 8)
    packed = pack(scenario)
    assert len(packed.data) < 1.2 * trace.busy.nbytes
    assert unpack(packed).recording.digest == scenario.recording.digest


def test_file_of_a_user_travels_as_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    configured = ib.policy(f"{file}:mine", first=2)
    packed = pack(configured)
    file.unlink()
    assert MINE.encode() in packed.data
    again = unpack(packed)
    assert again.policy.select.__module__ == configured.policy.select.__module__
    assert again.policy.cacheable
    assert again.policy.key == configured.policy.key
    assert again.label == "mine first=2"


def test_model_registered_in_python_travels_by_value() -> None:
    @ib.register_perturbation(name="above")
    class Above:
        bounds = (0.0, 2.0)

        def draw(rng: Any, dimension: int, clear: float) -> list[float]:
            return [clear]

        def value(theta: Any, x: Any) -> float:
            return 2.0 if x[0] >= theta[0] else 0.0

    scenario = ib.scenario("S1", perturbation="above")
    model = scenario.perturbation.model
    assert isinstance(model, UserModel)
    again = unpack(pack(scenario)).perturbation.model
    assert (again.name, again.source, again.key) == ("above", model.source, model.key)
    assert again.bounds(np.zeros(0)) == (0.0, 2.0)
    assert again.value([0.5], [0.6]) == 2.0
    assert model.cacheable
    assert not again.cacheable
    assert unpack(pack(ib.scenario("S2", perturbation="above"))).perturbation.model is again


def test_policy_that_refers_to_what_cannot_be_pickled_is_refused() -> None:
    file = (line for line in "ab")

    @ib.register(name="reads")
    class Reads:
        def init(setup: Any) -> Any:
            return next(file)

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            return 0

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            pass

    with pytest.raises(
        InputError, match=r"^policy reads: cannot be sent to workers: TypeError: cannot pickle 'generator'"
    ):
        pack(ib.policy(Reads))


def test_functions_of_the_package_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(ib.top_m)) is ib.top_m
