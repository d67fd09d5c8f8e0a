"""Text of a user's file with a perturbation model, for tests."""

LOUD = '''
import idleband as ib

@ib.register_perturbation(name="loud")
class Loud:
    """n = s max(x_1, ..., x_d) + t"""
    bounds = (0.0, 4.0)
    def draw(rng, dimension, clear):
        return [clear ** (-1 / dimension), 0.1 * ib.random.uniform(rng)]
    def value(theta, x):
        loudest = 0.0
        for entry in x:
            loudest = max(loudest, entry)
        return theta[0] * loudest + theta[1]
'''
