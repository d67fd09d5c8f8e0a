"""What is the same for policies and laws that users write: their files, their sources, their errors."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

import idleband as ib
from idleband import own
from tests.own_law import LOUD
from tests.own_policy import MINE


def test_a_file_may_hold_policies_and_laws(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE + LOUD)
    law = ib.scenario("S1", perturbation=f"{path}:loud").perturbation.law
    policy = ib.policy(f"{path}:mine").policy
    assert law.source == policy.source == hashlib.sha256(path.read_bytes()).hexdigest()
    for source, call in (
        (f"{path}:loud", ib.policy),
        (f"{path}:mine", lambda source: ib.scenario("S1", perturbation=source)),
    ):
        with pytest.raises(ib.InputError, match=f"in {path} '{source.rpartition(':')[2]}': .*Known: "):
            call(source)


def test_the_text_of_a_file_is_kept_when_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    texts = [LOUD + f"# {tmp_path} {i}\n" for i in range(2)]
    sources = []
    for text in texts:
        path.write_text(text)
        sources.append(ib.scenario("S1", perturbation=f"{path}:loud").perturbation.law.source)
    path.unlink()
    assert [own.file_of(source) for source in sources] == [("mine", text.encode()) for text in texts]
    assert own.file_of(None) is None
    assert own.file_of("of no file") is None


def test_what_a_file_makes_twice_under_one_name_is_told_apart() -> None:
    def law(shift: float) -> Any:
        members = {"draw": lambda rng, dimension, clear: [clear], "value": lambda theta, x: x[0] + shift}
        ib.register_law(name="shifted")(type("Own", (), {**members, "__module__": __name__}))
        return ib.scenario("S1", perturbation="shifted")

    a, b = law(0.0), law(0.5)
    assert a != b
    (one, _), (other, _) = (world.chances(world.theta(0, 0), 0.75) for world in (a, b))
    assert one[0] == pytest.approx(0.75, abs=0.003)
    assert other[0] == pytest.approx(0.25, abs=0.003)


def test_an_error_is_traced_to_its_function() -> None:
    def inner() -> None:
        raise KeyError("x")

    def outer() -> None:
        inner()

    with pytest.raises(KeyError) as caught:
        outer()
    assert own.passed(caught.value, inner)
    assert own.passed(caught.value, outer)
    assert not own.passed(caught.value, test_the_text_of_a_file_is_kept_when_the_file_changes)
    assert not own.passed(caught.value, len)
    line = inner.__code__.co_firstlineno + 1
    assert str(own.told("law a", caught.value)) == f"law a: KeyError: 'x' ({__file__}, line {line})"
