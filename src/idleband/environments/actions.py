"""Actions of the environments of Gymnasium: channels as zeros and ones, or a score for each channel."""

from typing import Any

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats
from idleband.errors import InputError, counted, shown
from idleband.scenario.scenario import Scenario

FORMS = ("channels", "scores")
INVALID = ("project", "error")


class Actions:
    """How the actions of N copies are read.

    Both forms select the available channels with the largest entries, of equal ones the lowest. For zeros and ones this
    is the projection: too many ones lose the highest channels, and too few gain the lowest ones.
    """

    def __init__(self, scenario: Scenario, form: str, invalid: str | None) -> None:
        self.scenario = scenario
        self.form = validation.choice(form, "actions", FORMS)
        if invalid is not None and form == "scores":
            raise InputError(f"invalid = {shown(invalid)}: not used where actions are scores")
        self.strict = validation.choice(invalid or "project", "invalid", INVALID) == "error"

    def scores(self, actions: Any, copies: int, available: Flags, places: int) -> Floats:
        """Return the score of every channel in every copy, shape (copies, K), from actions after validation."""
        K = self.scenario.K
        given = np.asarray(actions)
        if given.dtype.kind not in "biuf" or given.size != copies * K or given.shape[-1:] != (K,):
            kind = "zeros and ones" if self.form == "channels" else "finite numbers"
            raise InputError(f"action = {shown(actions)}: must be {K} {kind}, one per channel")
        scores = np.ascontiguousarray(given, np.float64).reshape(copies, K)
        if self.form == "scores":
            if not np.isfinite(scores).all():
                raise InputError(f"action = {shown(actions)}: must be {K} finite numbers, one per channel")
        elif ((scores != 0.0) & (scores != 1.0)).any():
            raise InputError(f"action = {shown(actions)}: must be {K} zeros and ones, one per channel")
        elif self.strict:
            self._check_channels(scores, available, places)
        return scores

    def _check_channels(self, scores: Floats, available: Flags, places: int) -> None:
        wrong = np.flatnonzero((scores.sum(axis=1) != places) | (scores[:, ~available] > 0.0).any(axis=1))
        if wrong.size:
            chosen = np.flatnonzero(scores[wrong[0]]).tolist()
            usable = np.flatnonzero(available).tolist()
            raise InputError(f"action: selects channels {chosen}; must be {counted(places, 'channel')} of {usable}")
