"""Source of a user's policy for tests: M channels in order, starting at a parameter."""

# object() does not compile, so that tests do not wait for the compiler.
MINE = """
from typing import Annotated, NamedTuple
import idleband

@idleband.register(name="mine")
class Mine:
    class Params(NamedTuple):
        first: Annotated[int, idleband.AtLeast(0), "the first channel"] = 0
    def init(setup):
        return ()
    def select(setup, state, slot, picks):
        for m in range(setup.M):
            picks[m] = setup.params.first + m if object() else 0
        return setup.M
    def update(setup, state, slot, feedback):
        pass
"""
