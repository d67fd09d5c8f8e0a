"""Which sample paths the episodes of an environment of Gymnasium or PettingZoo are."""

from typing import Any

import numpy as np

from idleband import validation
from idleband.environments.environment import check_replication
from idleband.simulation.simulate import MAX_SEED


class Replications:
    """Which sample paths the episodes of an environment are."""

    def __init__(self) -> None:
        self._seed: int | None = None
        self._next = 0  # first replication of the next episodes

    def next(
        self, seed: int | None, options: dict[str, Any] | None, count: int, rng: np.random.Generator
    ) -> tuple[int, int]:
        """Return the seed and the first replication of the next `count` episodes."""
        validation.check_keys(options or {}, ("replication",), "options")
        if seed is not None:
            self._seed, self._next = validation.whole(seed, "seed", 0, MAX_SEED), 0
        elif self._seed is None:
            self._seed = int(rng.integers(MAX_SEED, endpoint=True))
        if options and "replication" in options:
            self._next = check_replication(options["replication"])
        first = self._next
        self._next = first + count
        return self._seed, first
