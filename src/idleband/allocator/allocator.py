"""The public allocator: a core behind a lock."""

import contextlib
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, Self

import numpy.typing as npt

from idleband import validation
from idleband.allocator import inputs
from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, Receipt, RequestId, StepResult
from idleband.allocator.explanation import Explanation
from idleband.allocator.settings import Settings
from idleband.allocator.supervisor import SETTLE_TIMEOUT
from idleband.durable import write_durably
from idleband.errors import InputError, PolicyBusyError, counted
from idleband.policies.registry import PolicyLike
from idleband.scenario.scenario import Scenario

Channel = int | str
Values = npt.ArrayLike | Sequence[float | None] | Mapping[Channel, float | None] | Mapping[int, float]


class Allocator:
    """Assign channels slot by slot with a policy that learns from reports.

    The base station calls `decide` in each slot and `report` when it knows what the assigned channels returned. Reports
    may be partial, late or repeated; the feedback of a channel is learned once. All methods may be called from several
    threads.

    Parameters
    ----------
    policy : str, ConfiguredPolicy or type
        A policy by name (`"mp-lucb"`), with parameters (`"mp-lucb:beta=0.5"`, `idleband.policies.MPLUCB(beta=0.5)`), in
        a file (`"file.py:NAME"`), or a registered class.
    channels : int
        Number of channels K. Left out if `scenario` is given, like the other sizes.
    users : int
        Number of channels assigned in a slot at most, M.
    dimension : int
        Length of a context. May be left out if no policy uses contexts; `contexts` must then be None.
    channel_names : sequence of str, optional
        A name per channel, accepted wherever a channel is given and shown in explanations and in `status`.
    feedback : {"reward", "perturbation"}, default "reward"
        Whether reports may contain measured perturbations.
    rewards : pair of float, default (0.1, 1.0)
        Smallest and largest reward of a channel.
    sensing_errors : mapping, optional
        `missed` and `false_alarm`: probabilities that a busy channel is observed as idle, and an idle one as busy; each
        a number, or one per channel. Policies know them. None: observed states are the true ones.
    switching_cost : float, default 0.0
        Reward lost for each assigned channel that was not assigned in the slot before. Policies know it; reported
        rewards do not contain it.
    scenario : Scenario, str or mapping, optional
        A scenario that defines the sizes, rewards, feedback, sensing errors and switching cost. Oracles need one.
    seed, replication : int, default 0
        Random stream of the policy, as in `simulate`.
    patience : int, default 1000
        Number of slots for which a decision is kept for feedback and explanations.
    fallback : str, default "mp-ucb"
        Built-in policy that decides where the policy fails or misses its deadline.
    incumbent : str, optional
        Built-in policy whose selection is assigned while the policy learns from it (shadow mode).
    deadline : float, optional
        Seconds after which the fallback decides instead of the policy.
    collision_limit : float, default 1.0
        Channels on which a primary user is more likely than this are withheld.
    parameters : mapping, optional
        Parameters of the policy by name.
    **policy_parameters
        Parameters of the policy as keywords; `lambda_` for a parameter that is a Python keyword.

    Raises
    ------
    InputError
        If a setting is missing, unknown or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> allocator = Allocator("mp-lucb", channels=4, users=2, dimension=3, beta=0.5)
    >>> decision = allocator.decide(np.zeros((4, 3)))
    >>> decision.request_id, decision.channels
    (1, (0, 1))
    >>> allocator.report(decision.request_id, rewards=[1.0, 0.1], states=[1, 0]).learned
    (0, 1)
    """

    def __init__(
        self,
        policy: PolicyLike,
        /,
        *,
        channels: int | None = None,
        users: int | None = None,
        dimension: int | None = None,
        channel_names: Sequence[str] | None = None,
        feedback: str | None = None,
        rewards: Sequence[float] | None = None,
        sensing_errors: Mapping[str, Any] | None = None,
        switching_cost: float | None = None,
        scenario: Scenario | str | Mapping[str, Any] | None = None,
        seed: int = 0,
        replication: int = 0,
        patience: int | None = None,
        fallback: str = "mp-ucb",
        incumbent: str | None = None,
        deadline: float | None = None,
        collision_limit: float = 1.0,
        parameters: Mapping[str, Any] | None = None,
        **policy_parameters: Any,
    ) -> None:
        optional = {
            "channels": channels,
            "users": users,
            "dimension": dimension,
            "channel_names": channel_names,
            "feedback": feedback,
            "rewards": rewards,
            "sensing_errors": sensing_errors,
            "switching_cost": switching_cost,
            "scenario": scenario,
            "patience": patience,
            "incumbent": incumbent,
            "deadline": deadline,
            "parameters": parameters,
        }
        given = {
            "policy": policy,
            **{key: value for key, value in optional.items() if value is not None},
            "seed": seed,
            "replication": replication,
            "fallback": fallback,
            "collision_limit": collision_limit,
            **policy_parameters,
        }
        self._hold(AllocatorCore(Settings.checked(given)))

    def _hold(self, core: AllocatorCore) -> None:
        self._core, self._lock = core, Lock()
        _allocators.add(self)

    @classmethod
    def _around(cls, core: AllocatorCore) -> Self:
        allocator = cls.__new__(cls)
        allocator._hold(core)
        return allocator

    def __copy__(self) -> Self:
        """Return an allocator in the same state that shares nothing with this one."""
        copied = self._around(AllocatorCore.from_bytes(self._serialized(), "copy"))
        copied._core.repeated = self._core.repeated
        return copied

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __repr__(self) -> str:
        s = self.settings
        size = f"{counted(s.channels, 'channel')}, {counted(s.users, 'user')}"
        return f"Allocator({s.configured.label}: {size}, slot {self.slot})"

    @property
    def settings(self) -> Settings:
        """Settings of the allocator, with defaults filled in."""
        return self._core.settings

    @property
    def slot(self) -> int:
        """Slot of the last decision; 0 before the first."""
        return self._core.slot

    def decide(
        self,
        contexts: npt.ArrayLike | None = None,
        users: int | None = None,
        available: npt.ArrayLike | None = None,
        states: npt.ArrayLike | Sequence[int | None] | None = None,
        *,
        request_id: str | None = None,
        slot: int | None = None,
        incumbent: Sequence[Channel] | npt.ArrayLike | None = None,
    ) -> Decision:
        """Assign channels in the next slot.

        Parameters
        ----------
        contexts : array_like of shape (channels, dimension), optional
            Contexts of the slot. May be left out if no policy uses contexts.
        users : int, optional
            Number of channels wanted, from 0 to the allocator's `users`, which is the default.
        available : array_like of bool, optional
            Which channels may be assigned; all by default.
        states : array_like of int, optional
            State of each channel as sensed before the decision; None (or -1) where a channel was not sensed.
        request_id : str, optional
            Name of the decision; the slot number by default. The same request with the same name gets the same decision
            and takes no new slot.
        slot : int, optional
            Number of the slot, above the last one by at most 2^32; by default the next one.
        incumbent : sequence of channels, optional
            Channels (indices or names) to assign instead of the policy's selection, in order of preference. The policy
            learns from their feedback.

        Returns
        -------
        Decision

        Raises
        ------
        InputError
            If an argument is invalid. No slot is taken.
        ConflictError
            If `request_id` was used for a request with other values, or `slot` is too far from the last one.
        """
        core = self._core
        with self._lock:
            return core.decide(
                core.parse_decide(
                    contexts, users, available, states, request_id=request_id, slot=slot, incumbent=incumbent
                )
            )

    def report(
        self,
        request_id: RequestId,
        rewards: Values,
        states: Values | None = None,
        perturbations: Values | None = None,
    ) -> Receipt:
        """Learn from what the channels of a decision returned.

        Parameters
        ----------
        request_id : str or int
            `Decision.request_id`.
        rewards : sequence or mapping of float
            Reward of each assigned channel, in the order of `Decision.channels`, with None where there is no feedback
            yet; or a mapping from channels (indices or names) to rewards.
        states : sequence or mapping of int, optional
            State of each channel in the slot. States that are left out are inferred from the rewards.
        perturbations : sequence or mapping of float, optional
            Measured perturbations, if the allocator has `feedback="perturbation"`.

        Returns
        -------
        Receipt

        Raises
        ------
        InputError
            If a value is invalid. Nothing is learned.
        ConflictError
            If other feedback was reported for one of the channels before. Nothing is learned.
        UnknownRequestError
            If there is no such decision.
        """
        core = self._core
        with self._lock:
            if core.is_late(request_id):
                return core.count_late()
            return core.learn(core.parse_report(request_id, rewards, states, perturbations))

    def step(self, report: Mapping[str, Any] | None = None, decide: Mapping[str, Any] | None = None) -> StepResult:
        """Learn from the feedback of one slot and assign channels in the next, or neither if one of them is refused.

        Parameters
        ----------
        report : mapping, optional
            Arguments of `report`; left out in the first slot.
        decide : mapping, optional
            Arguments of `decide`; left out after the last slot.

        Returns
        -------
        StepResult

        Raises
        ------
        InputError, ConflictError, UnknownRequestError
            As `report` and `decide`. Nothing is learned and no slot is taken.

        Examples
        --------
        >>> allocator = Allocator("mp-ucb", channels=3, users=1)
        >>> first = allocator.step(decide={}).decision
        >>> allocator.step({"request_id": first.request_id, "rewards": [1.0]}, {}).decision.slot
        2
        """
        feedback, asked = inputs.step_parts(report, decide)
        core = self._core
        with self._lock:
            late = feedback is not None and core.is_late(feedback["request_id"])
            checked = None if feedback is None or late else core.parse_report(**feedback)
            if asked is not None:
                request = core.parse_decide(**{"contexts": None, **asked})
                core.check_decide(request)
            receipt = core.count_late() if late else None if checked is None else core.learn(checked)
            return StepResult(receipt, None if asked is None else core.decide(request))

    def explain(self, request_id: RequestId) -> Explanation:
        """Explain a decision of the last `patience` slots in sentences and numbers.

        Raises UnknownRequestError if there is no such decision.
        """
        with self._lock:
            return self._core.explain(request_id)

    def vacate(self, channels: Sequence[Channel] | npt.ArrayLike) -> tuple[int, ...]:
        """Exclude channels from assignment until they are restored, whatever the policy selects.

        Parameters
        ----------
        channels : sequence of int or str
            Indices or names of channels.

        Returns
        -------
        tuple of int
            Those of the channels that the last decision assigned: their users must leave them now.

        Examples
        --------
        >>> allocator = Allocator("mp-ucb", channels=3, users=2, channel_names=["north", "east", "west"])
        >>> allocator.decide().channels
        (0, 1)
        >>> allocator.vacate(["east", 2]), allocator.vacated, allocator.decide().channels
        ((1,), (1, 2), (0,))
        """
        with self._lock:
            return self._core.vacate(self._core.channel_indices(channels))

    def restore(self, channels: Sequence[Channel] | npt.ArrayLike) -> None:
        """Allow the assignment of vacated channels again, given by index or name."""
        with self._lock:
            self._core.restore(self._core.channel_indices(channels))

    @property
    def vacated(self) -> tuple[int, ...]:
        """Indices of the vacated channels."""
        return self._core.vacated

    @property
    def policy_failure(self) -> str:
        """Why the policy is out of service and the fallback decides; empty if it is in service."""
        return self._core.policy_failure

    def reset(self) -> None:
        """Put the policy back into service in its initial state. It forgets what it has learned."""
        with self._lock:
            self._core.reset()

    def status(self) -> dict[str, Any]:
        """Return sizes, counts since the start, the last decision and what is known of each channel, as plain data.

        Examples
        --------
        >>> allocator = Allocator("mp-ucb", channels=2, users=1)
        >>> allocator.status()["counts"]["decisions"]
        0
        """
        with self._lock:
            return self._core.status()

    def save(self, path: str | Path) -> None:
        """Write the complete state to a file.

        Raises
        ------
        PolicyBusyError
            If a policy with a deadline does not finish its pending work within 5 seconds.
        StorageError
            If the file cannot be written.
        """
        write_durably(validation.path(path, "path", "file"), self._serialized())

    def _serialized(self) -> bytes:
        """Return the complete state."""
        end = time.monotonic() + SETTLE_TIMEOUT
        while True:
            try:
                with self._lock:  # released while waiting, so that other threads can decide meanwhile
                    serialize = self._core.snapshot(0.0)
                break
            except PolicyBusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        return serialize()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return an allocator from a file written by `save`. It continues bit for bit where the saved one stopped.

        Raises InputError if the file cannot be read or is damaged.
        """
        try:
            data = validation.path(path, "path", "file").read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        return cls._around(AllocatorCore.from_bytes(data, str(path)))


# --- forks -----------------------------------------------------------------------------------------------------------

# A fork copies the calling thread only. It therefore waits until no other thread uses an allocator and no policy has
# pending work, so that both processes continue from the same state.

_allocators: weakref.WeakSet[Allocator] = weakref.WeakSet()
_held: dict[int, list[Allocator]] = {}  # allocators whose locks are held for a fork, by thread


def _before_fork() -> None:
    held = _held[get_ident()] = []
    for allocator in list(_allocators):
        if allocator._lock.acquire(timeout=SETTLE_TIMEOUT):  # otherwise a policy hangs, or forks itself
            held.append(allocator)
            with contextlib.suppress(Exception):  # a policy that is still busy is out of service in the child
                allocator._core.supervisor.settle()


def _after_fork_in_parent() -> None:
    for allocator in _held.pop(get_ident(), ()):
        allocator._lock.release()


def _after_fork_in_child() -> None:
    _held.clear()
    for allocator in list(_allocators):
        allocator._lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
