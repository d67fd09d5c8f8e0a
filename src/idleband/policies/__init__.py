"""Policies: one module per idea, the table of names, and a typed constructor for each built-in policy.

>>> import idleband as ib
>>> ib.policies.MPLUCB(beta=0.5)
ConfiguredPolicy(mp-lucb beta=0.5)
"""

from idleband.policies.constructors import *  # noqa: F403
from idleband.policies.constructors import __all__ as __all__
