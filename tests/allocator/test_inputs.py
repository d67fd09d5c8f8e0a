"""Invalid values: the error is one line that names the field, and the state does not change."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator import inputs
from idleband.errors import IdlebandError, InputError, UnknownRequestError, shown
from tests.allocator.helpers import state_of

K, d = 4, 2
NAN, INF = math.nan, math.inf
X = [[0.25, 0.5]] * K


def contexts_with(value: Any) -> Any:
    return [*X[:2], [0.25, value], *X[3:]]


def used() -> ib.Allocator:
    """Return an allocator with one decision on channels 0, 1 and 2 in slot 5, and a report for channel 0."""
    allocator = ib.Allocator("mp-ucb", channels=K, users=3, dimension=d)
    allocator.decide(X, slot=5)
    allocator.report(5, {0: 1.0})
    return allocator


BAD_QUESTIONS: list[tuple[dict[str, Any], str]] = [
    ({"contexts": None, "policy": "mp-lucb"}, "contexts: must be 4 rows, one per channel, of 2 numbers each"),
    ({"contexts": 1.0}, "contexts: must be 4 rows"),
    ({"contexts": X[:3]}, "contexts of shape (3, 2): must be 4 rows"),
    ({"contexts": [*X[:3], [1.0]]}, "contexts: must be 4 rows"),
    ({"contexts": np.zeros((d, K))}, "contexts of shape (2, 4): must be 4 rows"),
    ({"contexts": np.zeros((1, K, d))}, "contexts of shape (1, 4, 2): must be 4 rows"),
    ({"contexts": "contexts"}, "contexts: must be"),
    ({"contexts": contexts_with("a")}, "contexts: must be"),
    ({"contexts": contexts_with("0.5")}, "contexts: must be"),
    ({"contexts": contexts_with({})}, "contexts: must be"),
    ({"contexts": contexts_with(1j)}, "contexts: must be"),
    ({"contexts": np.full((K, d), 1j)}, "contexts: must be"),
    ({"contexts": contexts_with(10**400)}, "contexts: must be"),
    ({"contexts": contexts_with(None)}, "contexts[2][1] = nan: must be a finite number of at most 1e+06 in size"),
    ({"contexts": contexts_with(NAN)}, "contexts[2][1] = nan: must be a finite number"),
    ({"contexts": contexts_with(INF)}, "contexts[2][1] = inf: must be a finite number"),
    ({"contexts": contexts_with(-INF)}, "contexts[2][1] = -inf: must be a finite number"),
    ({"contexts": contexts_with(1e9)}, "contexts[2][1] = 1000000000.0: must be a finite number of at most 1e+06"),
    ({"users": 4}, "users = 4: must be a whole number from 0 to 3"),
    ({"users": -1}, "users = -1: must be"),
    ({"users": True}, "users = True: must be"),
    ({"users": 1.5}, "users = 1.5: must be"),
    ({"users": [1]}, "users = [1]: must be"),
    ({"users": NAN}, "users = nan: must be"),
    ({"available": [True] * 3}, "available = [True, True, True]: must be 4 values, true or false, one per channel"),
    ({"available": [True] * 5}, "available = "),
    ({"available": [0, 1, 2, 1]}, "available = [0, 1, 2, 1]: must be 4 values"),
    ({"available": [1.0, 0.5, 1.0, 0.0]}, "available = "),
    ({"available": [True, None, True, True]}, "available = "),
    ({"available": "1111"}, "available = '1111': must be"),
    ({"available": ["1", "0", "1", "0"]}, "available = "),
    ({"available": np.array(["1", "0", "1", "0"])}, "available = "),
    ({"available": np.full(K, NAN)}, "available = "),
    ({"available": 1}, "available = 1: must be"),
    ({"available": np.ones((K, 1), bool)}, "available = "),
    ({"states": [0, 1, 2, 0]}, "states = [0, 1, 2, 0]: must be 4, one per channel: 0 (busy) or 1 (idle)"),
    ({"states": [0, 1, -2, 0]}, "states = "),
    ({"states": [0, 1, 0.5, 0]}, "states = "),
    ({"states": [0, 1, INF, 0]}, "states = "),
    ({"states": [0, 1, NAN, None]}, "states = "),
    ({"states": [0, 1, 0]}, "states = "),
    ({"states": "idle"}, "states = 'idle': must be"),
    ({"states": ["0", "1", "1", "1"]}, "states = "),
    ({"states": [0, "idle", 0, 0]}, "states = "),
    (
        {"request_id": 2},
        "request_id = 2: must be text of 1 to 128 printable characters",
    ),  # a later slot has this number
    ({"request_id": 1.5}, "request_id = 1.5: must be text of 1 to 128 printable characters"),
    ({"request_id": True}, "request_id = True: must be"),
    ({"request_id": ""}, "request_id = '': must be"),
    ({"request_id": "a\nb"}, "request_id = 'a\\nb': must be"),
    ({"request_id": "x" * 129}, "request_id = 'xxx"),
    ({"request_id": ["a"]}, "request_id = ['a']: must be"),
    ({"request_id": ["a"], "slot": 9}, "request_id = ['a']: must be"),
    ({"request_id": b"a"}, "request_id = b'a': must be"),
    ({"slot": 5}, "slot = 5: must be a whole number from 6 to"),
    ({"slot": 0}, "slot = 0: must be"),
    ({"slot": 2**60}, "slot = 1152921504606846976: must be"),
    ({"slot": "soon"}, "slot = soon: must be"),
    ({"slot": True}, "slot = True: must be"),
    ({"incumbent": [4]}, "incumbent = 4: must be a channel index from 0 to 3"),
    ({"incumbent": [-1]}, "incumbent = -1: must be"),
    ({"incumbent": [1, 1]}, "incumbent = [1, 1]: each channel may be given once"),
    ({"incumbent": 1}, "incumbent = 1: must be a list of channels"),
    ({"incumbent": "01"}, "incumbent = '01': must be a list"),
]

BAD_REPORTS: list[tuple[dict[str, Any], str]] = [
    ({"rewards": None}, "rewards = None: must be 3 numbers, one for each of the channels [0, 1, 2]"),
    ({"rewards": 1.0}, "rewards = 1.0: must be 3 numbers"),
    ({"rewards": [1.0]}, "rewards = [1.0]: must be 3 numbers"),
    ({"rewards": [1.0] * 4}, "rewards = [1.0, 1.0, 1.0, 1.0]: must be 3 numbers"),
    ({"rewards": [1.0, "a", 1.0]}, "rewards = [1.0, 'a', 1.0]: must be 3 numbers"),
    ({"rewards": [1.0, "0.5", 1.0]}, "rewards = [1.0, '0.5', 1.0]: must be 3 numbers"),
    ({"rewards": {3: 1.0}}, "rewards: channel 3 was not assigned in 5"),
    ({"rewards": {"3": 1.0}}, "rewards: channel '3' was not assigned in 5; assigned: 0, 1, 2"),
    ({"rewards": {"north": 1.0}}, "rewards: channel 'north' was not assigned in 5"),
    ({"rewards": {True: 1.0}}, "rewards: channel True was not assigned in 5"),
    ({"rewards": {1: 1.0, "1": 1.0}}, "rewards: channel '1' is given twice"),
    ({"rewards": {1: [1.0]}}, "rewards = "),
    ({"rewards": [1.0, 0.1, 1.1]}, "rewards: 1.1 for channel 2: must be a number from 0.1 to 1"),
    ({"rewards": {1: 0.0}}, "rewards: 0 for channel 1: must be a number from 0.1 to 1"),
    ({"rewards": {1: INF}}, "rewards: inf for channel 1: must be"),
    ({"rewards": {1: -INF}}, "rewards: -inf for channel 1: must be"),
    ({"rewards": {1: 1.0}, "states": {1: 2}}, "states: 2 for channel 1: must be a whole number from 0 to 1"),
    ({"rewards": {1: 1.0}, "states": {1: -1}}, "states: -1 for channel 1: must be"),
    ({"rewards": {1: 1.0}, "states": {1: 0.5}}, "states: 0.5 for channel 1: must be"),
    ({"rewards": {1: 1.0}, "states": {1: INF}}, "states: inf for channel 1: must be"),
    ({"rewards": {1: 1.0}, "states": {3: 1}}, "states: channel 3 was not assigned in 5"),
    ({"rewards": {1: 1.0}, "states": [1]}, "states = [1]: must be 3 numbers"),
    ({"rewards": {1: 1.0}, "states": {2: 1}}, "rewards: none for channel 2, which has other feedback"),
    ({"rewards": {1: 1.0, 2: 7.0}}, "rewards: 7 for channel 2"),  # nor is channel 1 learned
    ({"rewards": {1: 1.0}, "perturbations": {1: 0.5}}, "perturbations: must be left out; this allocator has feedback"),
]


def refused(
    allocator: ib.Allocator, call: Callable[[], Any], message: str, error: type[IdlebandError] = InputError
) -> None:
    before = state_of(allocator)
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert state_of(allocator) == before


@pytest.mark.parametrize(("question", "message"), BAD_QUESTIONS)
def test_invalid_decide_arguments_are_refused_and_change_nothing(question: dict[str, Any], message: str) -> None:
    question = {"contexts": X, **question}
    if "policy" in question:
        allocator = ib.Allocator(question.pop("policy"), channels=K, users=3, dimension=d)
    else:
        allocator = used()
    refused(allocator, lambda: allocator.decide(**question), message)


@pytest.mark.parametrize(("report", "message"), BAD_REPORTS)
def test_invalid_report_arguments_are_refused_and_change_nothing(report: dict[str, Any], message: str) -> None:
    allocator = used()
    refused(allocator, lambda: allocator.report(**{"request_id": 5, **report}), message)


def test_invalid_perturbations_are_refused_and_change_nothing() -> None:
    allocator = ib.Allocator("mp-lucb", channels=K, users=3, dimension=d, feedback="perturbation")
    allocator.decide(X)
    for n, message in (
        ([0.1, INF, 0.1], "perturbations: inf for channel 1: must be a number of at most 1e+06 in size"),
        ([0.1, -1e7, 0.1], "perturbations: -1e+07 for channel 1"),
        ([0.1, "much", 0.1], "perturbations = [0.1, 'much', 0.1]: must be 3 numbers"),
        ({3: 0.1}, "perturbations: channel 3 was not assigned in 1"),
    ):
        refused(allocator, lambda n=n: allocator.report(1, [1.0] * 3, None, n), message)  # type: ignore[misc]
    refused(allocator, lambda: allocator.report(1, [1.0, None, 1.0], None, [0.1] * 3), "rewards: none for channel 1")
    assert allocator.report(1, [1.0] * 3, None, [0.1, None, -3.0]).learned == (0, 1, 2)  # one was not measured


def test_additive_rewards_are_limited_in_size() -> None:
    """The additive reward has no range of its own."""
    allocator = ib.Allocator("mp-ucb", scenario=ib.scenario("S3", reward="additive"))
    decision = allocator.decide(None)
    refused(
        allocator,
        lambda: allocator.report(decision.request_id, {decision.channels[0]: 2e6}),
        "rewards: 2e+06 for channel",
    )
    assert allocator.report(decision.request_id, {decision.channels[0]: -50.0}).learned == decision.channels[:1]


@pytest.mark.parametrize("nothing", [[None] * 3, {}, {1: None}, np.full(3, None)])
def test_a_report_without_values_is_accepted_and_changes_nothing(nothing: Any) -> None:
    allocator = used()
    before = state_of(allocator)
    assert allocator.report(5, nothing) == ib.Receipt(())
    assert state_of(allocator) == before


@pytest.mark.parametrize("feedback", [[NAN] * 3, [1.0, NAN, None], np.array([1.0, NAN, 0.1]), {1: NAN}])
def test_nan_in_feedback_is_refused(feedback: Any) -> None:
    allocator = used()
    refused(allocator, lambda: allocator.report(5, feedback), "rewards = ")
    refused(allocator, lambda: allocator.report(5, [1.0, 1.0, 1.0], feedback), "states = ")


@pytest.mark.parametrize("call", ["vacate", "restore"])
@pytest.mark.parametrize("value", [[4], [-1], [0.5], [True], ["a"], 1, "1", None, [1, 1]])
def test_invalid_channels_to_vacate_or_restore_are_refused(call: str, value: Any) -> None:
    allocator = used()
    refused(allocator, lambda: getattr(allocator, call)(value), "channels = ")


@pytest.mark.parametrize("request_id", ["no", "five", 0, 6, 7, [5], {}, None, 2.5])
def test_reports_and_explanations_of_unknown_decisions_are_refused(request_id: Any) -> None:
    allocator = used()
    message = f"request_id = {request_id!r}: no decision of the last 1,000 slots has it"
    for call in (lambda: allocator.explain(request_id), lambda: allocator.report(request_id, [1.0] * 3)):
        refused(allocator, call, message, UnknownRequestError)


def test_arrays_of_the_caller_are_copied() -> None:
    """Later changes of the caller's arrays have no effect."""
    allocator = ib.Allocator("mp-lucb", channels=K, users=2, dimension=d)
    x, available, states = np.full((K, d), 0.5), np.ones(K, bool), np.zeros(K)
    question = allocator._core.parse_decide(x, None, available, states)
    x[:], available[:], states[:] = 9.0, False, 1.0
    assert (question.contexts == 0.5).all()
    assert question.available.all()
    assert not question.sensed.any()


def test_accepted_forms_of_flags_and_feedback() -> None:
    assert inputs.flags([1, 0, True, False], K, "f").tolist() == [True, False, True, False]
    assert inputs.flags(np.array([1.0, 0.0, 1.0, 0.0]), K, "f").tolist() == [True, False, True, False]
    assert inputs.request_name("ä b") == "ä b"
    decision = ib.Decision("a", (3, 1), 1, "policy", (3, 1))
    assert inputs.feedback({1: 0.5}, decision, (), "rewards").tolist() == pytest.approx([NAN, 0.5], nan_ok=True)
    assert inputs.feedback((1, None), decision, (), "rewards").tolist() == pytest.approx([1.0, NAN], nan_ok=True)


# --- masked arrays and numbers of NumPy ------------------------------------------------------------------------------


def masked(values: Any) -> Any:
    array = np.ma.masked_array(np.array(values))
    array[..., -1] = np.ma.masked
    return array


@pytest.mark.parametrize(
    ("field", "question"),
    [
        ("contexts", {"contexts": masked(X)}),
        ("contexts", {"contexts": [*X[:3], masked(X[3])]}),
        ("contexts", {"contexts": np.ma.masked_array(X)}),  # nothing is masked: it may be in the next slot
        ("available", {"available": masked([1] * K)}),
        ("states", {"states": masked([1] * K)}),
    ],
)
def test_masked_arrays_are_refused(field: str, question: dict[str, Any]) -> None:
    allocator = used()
    before = state_of(allocator)
    with pytest.raises(InputError, match=f"{field}: is a masked array; must be an ordinary one"):
        allocator.decide(**{"contexts": X, **question})
    assert state_of(allocator) == before


@pytest.mark.parametrize("field", ["rewards", "states"])
def test_masked_feedback_is_refused(field: str) -> None:
    allocator = used()
    before = state_of(allocator)
    with pytest.raises(InputError, match=f"{field}: is a masked array"):
        allocator.report(5, **{"rewards": [None, 1.0, None], field: masked([1, 1, 1])})
    assert state_of(allocator) == before


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_])
def test_numbers_of_numpy_are_accepted_in_partial_reports(kind: Any) -> None:
    one, other = used(), used()
    assert one.report(5, [None, kind(1), None], states=[None, np.int8(1), None]).learned == (1,)
    other.report(5, [None, 1.0, None], states=[None, 1, None])
    assert state_of(one) == state_of(other)
    assert one.report(5, {np.int64(2): kind(1)}).learned == (2,)
    assert one.decide(X, available=[np.int64(1), 1, True, np.bool_(False)], states=[np.int8(1), None, 0, None])


def test_lengths_are_checked_before_elements() -> None:
    """A list of millions of lists takes seconds to convert."""

    class Row(list[float]):
        def __iter__(self) -> Any:
            raise AssertionError("was read")

    for wrong in ([Row([0.5, 0.5])] * 5, [Row([0.5, 0.5]), Row([0.5]), *X[2:]]):
        with pytest.raises(InputError, match="must be 4 rows"):
            used().decide(wrong)


def test_large_values_are_shown_without_reading_them_whole() -> None:
    deep: Any = 0
    for _ in range(10**5):
        deep = [deep, 1]
    assert len(shown(deep)) < 100
    assert len(shown([[0] * 10**6] * 10**6)) < 100
    assert shown({"a": [1.5, None], "b": ("x",)}) == "{'a': [1.5, None], 'b': ('x',)}"
    assert shown("x" * 10**8).startswith("'xxx")
    for value in ([], (), (1,), [1], [[]], ("a", b"b"), {}, {"a": ()}, "it's", 1.5, None):
        assert shown(value) == repr(value)


def test_slot_may_not_be_far_ahead() -> None:
    allocator = used()
    before = state_of(allocator)
    with pytest.raises(ib.ConflictError, match=r"slot = 4503599627370496: is too far from the last slot, 5;"):
        allocator.decide(X, slot=2**52)
    assert state_of(allocator) == before
    assert allocator.decide(X, slot=5 + 2**32).slot == 5 + 2**32
    allocator._core.slot = 2**52  # as in a journal of version 0.2
    assert allocator.decide(X, slot=2**52 + 1).slot == 2**52 + 1
