"""What MP-LUCB has learned of the perturbation, beside the truth, after more and more slots."""

import numpy as np

import idleband as ib

theta = [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197]
scenario = ib.scenario("S1", perturbation={"theta": theta})
for horizon in (100, 1_000, 10_000):
    result = ib.simulate(scenario, "mp-lucb", horizon=horizon, replications=1)
    favourite = result.plays[0].argmax()
    learned = result.state[0].theta[favourite]
    error = np.abs(learned - theta).max()
    plays = result.plays[0, favourite]
    print(f"{horizon:6d} slots: channel {favourite + 1} played {plays} times, largest error {error:.4f}")
