"""Typed constructors of policies: generated from the registry, documented, and checked by a type checker."""

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import idleband as ib
from idleband.policies import constructors
from idleband.policies.registry import all_policies
from tests.conftest import ROOT

BUILT_IN = [name for name, policy in all_policies().items() if policy.source is None]


def constructor_of(name: str) -> typing.Any:
    return next(
        getattr(ib.policies, exported) for exported in constructors.__all__ if exported.lower() == name.replace("-", "")
    )


def test_generated_file_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_constructors.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_there_is_one_constructor_per_policy() -> None:
    assert len(constructors.__all__) == len(BUILT_IN)
    assert {"MPLUCB", "MPLUCBPrinted", "RCAM", "C2UCB", "NeuralTS", "OracleStatic", "Genie"} <= set(dir(ib.policies))


@pytest.mark.parametrize("name", BUILT_IN)
def test_constructor_has_the_parameters_and_defaults_of_the_policy(name: str) -> None:
    make = constructor_of(name)
    assert make() == ib.policy(name)
    signature = inspect.signature(make)
    definition = all_policies()[name]
    settable = {key: p for key, p in definition.parameters.items() if key not in definition.fixed}
    assert {key.removesuffix("_") for key in signature.parameters} == set(settable)
    for key, parameter in signature.parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == settable[key.removesuffix("_")].default
        assert f"    {key} : " in make.__doc__
        assert make(**{key: parameter.default}) == make()
    assert signature.return_annotation is ib.ConfiguredPolicy


def test_parameters_are_passed_to_the_policy() -> None:
    made = ib.policies.MPLUCB(beta=0.5, lambda_=2, width="sampled", shared=True)
    assert made == ib.policy("mp-lucb", beta=0.5, lambda_=2, width="sampled", shared=True)
    with pytest.raises(ib.InputError, match="beta = -1: must be a finite number of at least 0"):
        ib.policies.MPLUCB(beta=-1)


CHECKED = """
import idleband as ib

reveal_type(ib.policies.MPLUCB)
ib.policies.MPLUCB(beta=0.5, shared=True)
ib.policies.MPLUCB(betta=1)
ib.policies.MPLUCB(beta="x")
ib.policies.MPLUCB(width="wide")
"""


def test_type_checker_shows_parameters_and_finds_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "checked.py"
    path.write_text(CHECKED)
    # Only these files are analysed, which takes a few seconds instead of the time for the whole package.
    package = ROOT / "src" / "idleband"
    files = [package / "__init__.py", *(package / "policies" / f"{n}.py" for n in ("__init__", "constructors"))]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--config-file=", "--follow-imports=skip"]
    command += ["--ignore-missing-imports", f"--cache-dir={tmp_path}", *map(str, files), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "src", timeout=120)
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        number, _, message = line.partition("checked.py:")[2].partition(": ")
        found[number] = found.get(number, "") + message
    assert {number for number, message in found.items() if "error" in message} == {"6", "7", "8"}, done.stdout
    assert "beta: float =" in found["4"].replace("builtins.", "")
    assert "'optimistic'" in found["4"]
    assert '"betta"' in found["6"]
    assert 'expected "float"' in found["7"]
    assert "optimistic" in found["8"]
