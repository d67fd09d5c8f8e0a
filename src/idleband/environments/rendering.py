"""An image of the last slots: what was observed of each channel, and what was played."""

import numpy as np
import numpy.typing as npt

from idleband.arrays import Flags
from idleband.environments.episode import STATE, Episode, shown_states
from idleband.policies.knowledge import setup_of
from idleband.scenario.scenario import Scenario

Image = npt.NDArray[np.uint8]

SLOTS = 60  # in an image
CELL = 12  # pixels of a slot of a channel
MARK = 4  # pixels of the square of a play

UNKNOWN, BUSY, IDLE, UNAVAILABLE = range(4)
COLOURS = np.array([(208, 208, 208), (213, 94, 0), (86, 180, 233), (255, 255, 255)], np.uint8)
BACKGROUND, PLAYED = np.uint8(255), np.uint8(0)


class Film:
    """The last slots of an episode, and the present one at the right."""

    def __init__(self, scenario: Scenario) -> None:
        self._good = setup_of(scenario, ()).good
        self._cells = np.full((scenario.K, SLOTS), UNAVAILABLE)
        self._played = np.zeros((scenario.K, SLOTS), np.bool_)

    def restart(self, episode: Episode, available: Flags) -> None:
        """Remove all slots and add slot 1."""
        self._cells[:] = UNAVAILABLE
        self._played[:] = False
        self._append(episode, available)

    def add(self, episode: Episode, played: Flags, available: Flags) -> None:
        """Add what was played in the slot at the right, and the next slot."""
        picks = np.flatnonzero(played)
        order = np.argsort(episode.picks[: len(picks)])
        states = episode.feedback[STATE, : len(picks)][order].astype(int)
        self._played[picks, -1] = True
        self._cells[picks, -1] = np.where(self._good[picks, states], IDLE, BUSY)
        self._append(episode, available)

    def _append(self, episode: Episode, available: Flags) -> None:
        for table in (self._cells, self._played):
            table[:, :-1] = table[:, 1:]
        cells = np.full(len(self._cells), UNKNOWN)
        if episode.sensing:
            cells = np.where(
                self._good[np.arange(len(cells)), shown_states(episode.path, True, episode.hidden)], IDLE, BUSY
            )
        self._cells[:, -1] = np.where(available, cells, UNAVAILABLE)
        self._played[:, -1] = False

    def draw(self) -> Image:
        """Return the image, shape (K * CELL, SLOTS * CELL, 3)."""
        K = len(self._cells)
        image = np.full((K, CELL, SLOTS, CELL, 3), BACKGROUND)
        image[:, 1:, :, 1:] = COLOURS[self._cells][:, None, :, None]
        first = (CELL + 1 - MARK) // 2
        marks = image[:, first : first + MARK, :, first : first + MARK]
        marks[np.broadcast_to(self._played[:, None, :, None], marks.shape[:4])] = PLAYED
        return image.reshape(K * CELL, SLOTS * CELL, 3)
