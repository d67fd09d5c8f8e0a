"""States that are copied equal those that `init` returns, and share only what no policy writes."""

from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.memory import LINE
from idleband.policies.knowledge import setup_of
from idleband.policies.protocol import PARAMETERS
from idleband.policies.state_template import copied, state_maker
from tests.contracts.configurations import CONFIGURED, EVERY, world_of

SHARED = {"mp-ts-episodes": {"probabilities", "likelihood"}}


def arrays(state: Any, name: str = "") -> dict[str, np.ndarray]:
    if isinstance(state, np.ndarray):
        return {name: state}
    if not isinstance(state, tuple):
        return {}
    fields = getattr(state, "_fields", range(len(state)))
    return {key: array for f, part in zip(fields, state, strict=True) for key, array in arrays(part, str(f)).items()}


@pytest.mark.parametrize("label", [label for label, one in CONFIGURED.items() if PARAMETERS not in one.policy.knows])
def test_copied_states_equal_new_ones(label: str) -> None:
    configured, scenario = CONFIGURED[label], EVERY[world_of(label)]
    make = state_maker(scenario, configured.policy.init, configured.params)
    expected, one, other = configured.policy.init(setup_of(scenario, configured.params)), make(), make()
    assert type(one) is type(expected)
    for name, array in arrays(one).items():
        wanted = arrays(expected)[name]
        assert (array.dtype, array.shape, array.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes()), name
        assert array.flags.c_contiguous
        assert array.flags.writeable
        if wanted.base is not None and wanted.base.size == wanted.size + LINE // 8:  # made by `memory.aligned`
            assert array.ctypes.data % LINE == 0
    shared = {name for name, array in arrays(one).items() if np.shares_memory(array, arrays(other)[name])}
    assert shared == SHARED.get(configured.policy.name, set())


def test_copies_share_nothing() -> None:
    configured = ib.policy("mp-ts-episodes", grid=3)
    state = configured.policy.init(setup_of(ib.scenario("S1"), configured.params))
    copy = copied(state)
    for name, array in arrays(copy).items():
        assert array.tobytes() == arrays(state)[name].tobytes()
        assert not np.shares_memory(array, arrays(state)[name])
