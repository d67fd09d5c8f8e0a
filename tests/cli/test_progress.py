"""The progress bar of the command line."""

import io

import pytest
from rich.console import Console

from idleband.cli import progress
from idleband.cli.progress import ProgressBar


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what a progress bar writes to a terminal."""
    text = io.StringIO()
    terminal = Console(file=text, force_terminal=True, width=100)
    original = progress._display

    def display(rate: bool) -> object:
        bar = original(rate)
        bar.live.console = terminal
        return bar

    monkeypatch.setattr(progress, "_display", display)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    return text


def test_policy_being_prepared_is_shown(shown: io.StringIO) -> None:
    with ProgressBar() as bar:
        bar.expect(1000)
        bar.compiling("mp-nucb")
    assert "preparing mp-nucb" in shown.getvalue()


def test_messages_are_printed_if_announce_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(announce=True) as bar:
        bar.message("S1: 1 policy x 2 replications x 3 slots")
        bar.expect(6)
        bar.advance(6)
    assert capsys.readouterr().out == "S1: 1 policy x 2 replications x 3 slots\n"
