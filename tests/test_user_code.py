"""Policies and perturbation models of users: files, sources, and errors."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

import idleband as ib
from idleband import user_code
from tests.own_model import LOUD
from tests.own_policy import MINE


def test_file_may_contain_policies_and_models(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE + LOUD)
    model = ib.scenario("S1", perturbation=f"{path}:loud").perturbation.model
    policy = ib.policy(f"{path}:mine").policy
    assert model.source == policy.source == hashlib.sha256(path.read_bytes()).hexdigest()
    for source, load in (
        (f"{path}:loud", ib.policy),
        (f"{path}:mine", lambda source: ib.scenario("S1", perturbation=source)),
    ):
        with pytest.raises(ib.InputError, match=f"'{source.rpartition(':')[2]}' in {path}: .*known: "):
            load(source)


def test_text_of_a_file_is_kept_when_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    texts = [LOUD + f"# {tmp_path} {i}\n" for i in range(2)]
    sources = []
    for text in texts:
        path.write_text(text)
        sources.append(ib.scenario("S1", perturbation=f"{path}:loud").perturbation.model.source)
    path.unlink()
    assert [user_code.file_of(source) for source in sources] == [("mine", text.encode()) for text in texts]
    assert user_code.file_of(None) is None
    assert user_code.file_of("of no file") is None


def test_classes_with_the_same_name_are_different_models() -> None:
    def model(shift: float) -> Any:
        members = {"draw": lambda rng, dimension, clear: [clear], "value": lambda theta, x: x[0] + shift}
        ib.register_perturbation(name="shifted")(type("Own", (), {**members, "__module__": __name__}))
        return ib.scenario("S1", perturbation="shifted")

    a, b = model(0.0), model(0.5)
    assert a != b
    (one, _), (other, _) = (scenario.probabilities_below(scenario.theta(0, 0), 0.75) for scenario in (a, b))
    assert one[0] == pytest.approx(0.75, abs=0.003)
    assert other[0] == pytest.approx(0.25, abs=0.003)


def test_error_is_attributed_to_the_functions_it_passed() -> None:
    def inner() -> None:
        raise KeyError("x")

    def outer() -> None:
        inner()

    with pytest.raises(KeyError) as caught:
        outer()
    assert user_code.passed(caught.value, inner)
    assert user_code.passed(caught.value, outer)
    assert not user_code.passed(caught.value, test_text_of_a_file_is_kept_when_the_file_changes)
    assert not user_code.passed(caught.value, len)
    line = inner.__code__.co_firstlineno + 1
    assert str(user_code.as_input_error("model a", caught.value)) == f"model a: KeyError: 'x' ({__file__}, line {line})"
