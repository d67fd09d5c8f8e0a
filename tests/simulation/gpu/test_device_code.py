"""Copies of functions for a GPU leave those of the CPU as they are."""

import types
from typing import Any

from idleband.kernels import logistic, ridge
from idleband.policies import lucb
from idleband.simulation import loop
from idleband.simulation.gpu.device_code import DeviceCode


def test_constants_have_another_value_in_copies_only() -> None:
    code = DeviceCode()
    own, of_module = code.function(ridge.learn), code.function(logistic.learn)
    assert own.__globals__["LOWER_TRIANGLE"] is True
    assert of_module.__globals__["ridge"].LOWER_TRIANGLE is True
    assert ridge.LOWER_TRIANGLE is False
    assert own is not ridge.learn
    assert ridge.learn.__globals__ is vars(ridge)


def test_a_copy_refers_to_copies_of_what_it_calls() -> None:
    code = DeviceCode()
    select = code.function(lucb.select)
    module = select.__globals__["ridge"]
    assert module is not ridge
    assert module.width_squared is not ridge.width_squared
    assert module.width_squared.__globals__["entry"].__globals__["LOWER_TRIANGLE"] is True
    assert code.function(lucb.select) is select
    assert module.width_squared is code.function(ridge.width_squared)


def test_functions_of_a_policy_are_bound() -> None:
    code = DeviceCode()
    run = code.function(loop.run, {"select": lucb.select, "update": lucb.update})
    assert run.__globals__["select"] is code.function(lucb.select)
    assert loop.select is NotImplemented


def test_functions_under_numba_njit_and_of_the_top_module_are_copied() -> None:
    class Dispatcher:
        py_func = staticmethod(ridge.predict)

    import idleband as ib

    dispatcher: Any = Dispatcher()

    names = {"dispatcher": dispatcher, "ib": ib, "__name__": "own"}
    code = DeviceCode()
    copy = code.function(types.FunctionType(compile("dispatcher, ib.random.uniform", "own.py", "eval"), names))
    assert copy.__globals__["dispatcher"] is code.function(dispatcher)
    assert copy.__globals__["ib"].random.uniform is not ib.random.uniform
