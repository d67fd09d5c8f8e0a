"""Compilation of users' policies: conversions that compile, warnings, and `compiled="require"`."""

import logging
import sys
import warnings
from pathlib import Path

import pytest

import idleband as ib
from idleband import binding
from idleband.kernels.compile import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")

TEMPLATE = """import idleband as ib

@ib.register{options}
class Own:
    def init(setup):
        return ()
    def select(setup, state, slot, picks):
        for k in range(setup.K):
            slot.indices[k] = {index}
        return ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    def update(setup, state, slot, feedback):
        pass
"""
INDEX_LINE = 9
NOT_COMPILED = "k if object() else 0"  # takes the compiler a fifth of the time


def own_policy(folder: Path, index: str, options: str = "") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "mine.py"
    text = TEMPLATE.format(index=index, options=options)
    path.write_text(f"{text}# {folder}\n")  # no other test has compiled this text
    return f"{path}:Own"


CONVERSIONS = (
    "float(slot.available[k])",
    "int(slot.available[k])",
    "float(slot.contexts[k, 0] > 0.5)",
    "int(slot.contexts[k, 0] > 0.5) + bool(k)",
    "float(setup.threshold) + float(setup.good[k, 0]) + float(k) + int(slot.contexts[k, 0])",
)


def test_conversions_compile(tmp_path: Path) -> None:
    source = own_policy(tmp_path, " + ".join(CONVERSIONS))
    result = ib.simulate("S1", source, horizon=20, replications=1, compiled="require")
    assert result.note == ""


def test_conversions_give_the_values_of_python(tmp_path: Path) -> None:
    index = "2.0 * float(slot.contexts[k, 0] > 0.5) + int(slot.contexts[k, 1] > 0.5)"
    compiled = ib.simulate("S1", own_policy(tmp_path, index), horizon=100, replications=1)
    interpreted = ib.simulate(
        "S1", own_policy(tmp_path, f"{index} + (0 if object() else 1)"), horizon=100, replications=1
    )
    assert (compiled.note, bool(interpreted.note)) == ("", True)
    assert compiled.plays.tolist() == interpreted.plays.tolist()


def test_policy_that_does_not_compile_warns_once_with_place_and_reason(tmp_path: Path) -> None:
    source = own_policy(tmp_path, NOT_COMPILED)
    with pytest.warns(ib.CompilationWarning) as caught:
        ib.simulate("S1", source, horizon=5, replications=1)
    (warning,) = caught
    file = source.removesuffix(":Own")
    assert (warning.filename, warning.lineno) == (file, INDEX_LINE)
    message = str(warning.message)
    assert message.startswith(f"policy Own does not compile ({file}, line {INDEX_LINE}) and runs interpreted")
    assert len(message.splitlines()) > 3
    assert "object" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ib.simulate("S1", source, horizon=5, replications=1)
        ib.Allocator(source, channels=3, users=1, dimension=1)


def test_policy_that_requires_compilation_is_refused_if_it_fails(tmp_path: Path) -> None:
    place = rf"policy Own does not compile \(.*mine.py, line {INDEX_LINE}\): .*object"
    source = own_policy(tmp_path, NOT_COMPILED)
    for refused in (
        lambda: ib.simulate("S1", source, horizon=5, replications=1, compiled="require"),
        lambda: ib.compare("S1", [source], horizon=5, replications=1, compiled="require"),
        lambda: ib.simulate(
            "S1", own_policy(tmp_path, NOT_COMPILED, '(compiled="require")'), horizon=5, replications=1
        ),
        lambda: ib.Allocator(source, channels=3, users=1, dimension=1),
    ):
        with pytest.raises(ib.InputError, match=place):
            refused()
    with pytest.raises(ib.InputError, match="compiled = 'always'"):
        ib.simulate("S1", "mp-ucb", horizon=5, replications=1, compiled="always")  # type: ignore[arg-type]


def test_first_compilation_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "idleband"):
        ib.simulate("S1", own_policy(tmp_path, NOT_COMPILED), horizon=5, replications=1)
    assert [record.message for record in caplog.records] == [f"compiling Own, usually {binding.OTHERWISE} s, once"]
    assert binding.usual_seconds(ib.policy("mp-nucb").policy) > binding.usual_seconds(ib.policy("mp-ucb").policy)


def test_first_compilation_is_announced_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = f"idleband: compiling Own, usually {binding.OTHERWISE} s, once\n"
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)  # noqa: B023
        ib.simulate("S1", own_policy(tmp_path / str(terminal), NOT_COMPILED), horizon=5, replications=1)
        assert capsys.readouterr().err == (expected if terminal else "")


def test_select_without_a_return_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = TEMPLATE.format(index="k", options="").replace("return ib.top_m", "ib.top_m")
    path.write_text(text)
    with pytest.raises(ib.InputError, match="policy Own: select returned None; must return the number of channels"):
        ib.simulate("S1", f"{path}:Own", horizon=5, replications=1)
