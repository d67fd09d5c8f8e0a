"""Progress bar on a terminal."""

import sys
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from idleband.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID


class ProgressBar(Progress):
    """A progress bar with rate and time left on stderr, shown only where stderr is a terminal.

    With `announce`, messages are printed on stdout instead of being shown before the bar.
    """

    def __init__(self, rate: bool = True, announce: bool = False) -> None:
        self.rate, self.announce, self.total = rate, announce, 0.0
        self.display: Display | None = None
        self.task: TaskID
        self.lock = Lock()

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty():
            self.display = _display(self.rate)
            self.task = self.display.add_task("", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self.display is not None:
            self.display.stop()

    def expect(self, slots: float) -> None:
        """Extend the bar by the announced work."""
        with self.lock:
            self.total += slots
        self._update(total=self.total)

    def compiling(self, policy: str) -> None:
        """Show which policy is prepared; a line above the bar says if it is compiled."""
        self._update(description=f"preparing {policy}")

    def advance(self, slots: float) -> None:
        """Move the bar."""
        self._update(advance=slots, description="running")

    def message(self, text: str) -> None:
        """Print a text, or show it before the bar."""
        if self.announce:
            print(text)
        else:
            self._update(description=text)

    def _update(self, **changes: Any) -> None:
        if self.display is not None:
            if not self.display.live.is_started:
                self.display.start()
            self.display.update(self.task, **changes)


def _display(rate: bool) -> "Display":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed / 1e6:.2f} M slots/s" if task.speed else "")

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()]
    if rate:
        columns.append(Rate())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
