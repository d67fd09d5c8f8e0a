"""Give late feedback to MP-Belief-NUCB and print, as JSON, what it stored and computed.

Run in a separate process with NUMBA_DISABLE_JIT=1: compiling a network takes longer than running these few slots.
"""

import json
from typing import Any

import numpy as np

from idleband.policies import belief_nucb
from tests.policies.station import Station

SCENARIO: dict[str, Any] = {"p01": [0.5], "p10": [0.5]}


def late(shared: bool) -> dict[str, Any]:
    """Report the play of slot 4 after that of slot 9; the plays of slots 5 to 8 are never reported."""
    station = Station("mp-belief-nucb", scenario=SCENARIO, D=4, shared=shared)
    net, success = station.state.net, station.state.success
    A, rng, n_hat = np.ones(net.vectors.g[0].size), np.random.default_rng(1), np.zeros(1)
    for _ in range(3):
        station.choose(x=rng.uniform(0, 1, (1, 2)))
        A += net.vectors.g[0].ravel() ** 2 / 4
        station.learn(0, 1, 0.4)
    station.choose(x=[[0.9, 0.2]])
    slot = station.slot
    for _ in range(5):
        station.choose(x=rng.uniform(0, 1, (1, 2)))
    station.learn(0, 1, 0.4)
    station.slot = slot
    belief_nucb.predict(station.setup, station.state, slot.contexts, n_hat)
    square, last_observation = float(success.square[0]), station.state.chains.last_observation
    A += net.vectors.g[0].ravel() ** 2 / 4
    station.learn(0, 0, 0.8)
    g = net.vectors.g[0].ravel()
    return {
        "input": net.samples.inputs[0, 4].tolist(),
        "y": float(net.samples.y[0, 4]),
        "last_observation": [int(last_observation.state[0]), int(last_observation.slot[0])],
        "error": 0.8 - float(n_hat[0]),
        "q": float((g**2 / A).sum()) / 4,
        "added": 15 * float(success.square[0])
        - 14 * square,  # error^2 / (1 + q) of the 5th error, after 10 prior errors
    }


if __name__ == "__main__":
    print(json.dumps([late(shared) for shared in (False, True)]))
