"""A user's perturbation model: the strongest of several neighbours determines the perturbation.

python examples/own_model.py
"""

import idleband as ib


@ib.register_perturbation(name="loudest")
class Loudest:
    """n = s max(x_1, ..., x_d)"""

    bounds = (0.0, 2.0)  # for any clear of at least 2^-d; the additive reward needs them

    def draw(rng, dimension, clear):
        return [clear ** (-1 / dimension)]  # s, such that P(n < 1) = P(max x < 1 / s) = s^-d = clear

    def value(theta, x):
        loudest = 0.0
        for entry in x:
            loudest = max(loudest, entry)
        return theta[0] * loudest


if __name__ == "__main__":
    for model in ("linear", "loudest"):
        scenario = ib.scenario("S1", perturbation={"kind": model, "clear": 0.7})
        gain = ib.compare(scenario, ["mp-ucb", "mp-lucb"], horizon=10_000).difference(
            "mp-lucb", "mp-ucb", per_slot=True
        )
        print(f"{model}: {gain}")
