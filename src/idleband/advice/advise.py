"""Recommend a policy for a recorded band.

The trace is described and fitted, and every suitable policy is replayed on it. The recommendation follows one rule:
`mp-adaptive`, which has no parameter to tune, unless another policy earns clearly more on this recording: the 95%
interval of the paired difference lies above 0 and the difference is at least 0.1% of the reward. Then it is the one
that earns most.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idleband import validation
from idleband.cluster.connect import executor_for
from idleband.errors import InputError
from idleband.experiments.run import run_experiment
from idleband.experiments.spec import experiment
from idleband.experiments.study import Study
from idleband.policies.protocol import CONTEXTS_SEEN, PARAMETERS, STATES_SEEN
from idleband.policies.registry import POLICIES, ConfiguredPolicy, PolicyLike, policy
from idleband.progress import SILENT, Progress
from idleband.scenario.build import scenario
from idleband.simulation.statistics import Difference
from idleband.trace.fit.fit import MIN_SLOTS, TraceFit
from idleband.trace.statistics import TraceStatistics
from idleband.trace.trace import Trace
from idleband.validation import WholeNumber

if TYPE_CHECKING:
    from distributed import Client

PREFERRED = "mp-adaptive"
MARGIN = 0.001  # share of the reward below which a difference does not matter
REPLICATIONS = 5  # starting points in the recording


@dataclass(frozen=True)
class PolicyReplay:
    """What one policy earned on the recording."""

    label: str
    reward: float  # per slot
    share_of_genie: float
    collisions: float  # share of plays
    behind: Difference | None  # reward per slot of the best policy minus that of this one; None for the best
    microseconds: float  # processor time per slot

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the 95% interval of `behind`; None for the best policy, and where there are too few blocks."""
        if self.behind is None or not math.isfinite(self.behind.low):
            return None
        return self.behind.low, self.behind.high

    @property
    def clearly_behind(self) -> bool:
        """Whether the best policy earns clearly more: not by accident, and by a share that matters."""
        return self.behind is not None and self.behind.low > 0.0 and self.behind.mean >= MARGIN * self.reward

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON; None where there is no number."""
        behind = None if self.behind is None else {"mean": self.behind.mean, "interval": self.interval}
        return {
            "policy": self.label,
            "reward": self.reward,
            "share_of_genie": self.share_of_genie,
            "collisions": self.collisions,
            "behind": behind,
            "microseconds": self.microseconds if math.isfinite(self.microseconds) else None,
        }


@dataclass(frozen=True)
class Advice:
    """A recommended policy for a recorded band, and what it is based on.

    Attributes
    ----------
    recommended : str
        Label of the recommended policy.
    reason : str
        Why it is recommended, in one sentence.
    command : str
        The `idleband serve` line that runs it.
    replays : tuple of PolicyReplay
        What each policy earned on the recording, the highest reward first.
    references : dict of str to float
        Rewards of references as shares of the genie's.
    trace : Trace
        The recording.
    statistics : TraceStatistics
        Its description.
    fit : TraceFit or None
        The fitted scenario; None if the trace is too short.
    study : Study
        The replays as a study.
    """

    recommended: str
    reason: str
    command: str
    replays: tuple[PolicyReplay, ...]
    references: dict[str, float]
    trace: Trace
    statistics: TraceStatistics
    fit: TraceFit | None
    study: Study

    @property
    def users(self) -> int:
        """Number of channels that are assigned per slot."""
        return self.study.scenario.users

    def replay(self, label: str) -> PolicyReplay:
        """Return what one policy earned.

        Parameters
        ----------
        label : str
            Label of the policy.
        """
        return next(one for one in self.replays if one.label == label)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays of the trace, for JSON."""
        return {
            "recommended": self.recommended,
            "reason": self.reason,
            "command": self.command,
            "users": self.users,
            "channels": self.trace.K,
            "slots": self.trace.T,
            "threshold_rule": self.trace.threshold_rule,
            "policies": [one.to_dict() for one in self.replays],
            "references_as_share_of_genie": self.references,
            "fit": None if self.fit is None else {"model": self.fit.model.name, "verdict": self.fit.verdict.to_dict()},
        }


def candidates() -> list[ConfiguredPolicy]:
    """Return the policies that can be replayed: they know no parameters, use no contexts and sense played channels."""
    unsuitable = {CONTEXTS_SEEN, PARAMETERS, STATES_SEEN}
    return [policy(one) for one in POLICIES.values() if one.source is None and not one.knows & unsuitable]


def advise(
    trace: str | Path | Trace,
    *,
    users: WholeNumber,
    policies: Sequence[PolicyLike] | None = None,
    replications: WholeNumber = REPLICATIONS,
    seed: WholeNumber = 0,
    out: str | Path | None = None,
    threads: int | None = None,
    client: "Client | None" = None,
    progress: Progress = SILENT,
) -> Advice:
    """Recommend a policy for a recorded band.

    Parameters
    ----------
    trace : str, Path or Trace
        A trace, or the path of a trace file.
    users : int
        Number of channels to assign per slot.
    policies : list of policies, optional
        The policies to replay; by default all that need neither contexts nor parameters of the scenario.
    replications : int
        Number of starting points in the recording.
    seed : int
        Seed of the policies' random streams.
    out : str or Path, optional
        Folder for results and report.html. If it contains part of the replays, only the rest is run.
    threads : int, optional
        Number of threads; by default all processor cores.
    client : dask.distributed.Client, optional
        Replay on the workers of a Dask cluster instead of on threads. Needs the extra `cluster`.
    progress : Progress, optional
        Observer of the replays.

    Returns
    -------
    Advice

    Raises
    ------
    InputError
        If an argument is invalid.

    Examples
    --------
    >>> import idleband as ib, numpy as np
    >>> busy = np.random.default_rng(0).random((400, 4)) < [0.1, 0.3, 0.5, 0.7]
    >>> trace = ib.Trace.from_arrays(busy=busy, channel_names=["a", "b", "c", "d"])
    >>> advice = ib.advise(trace, users=2, policies=["mp-random", "mp-ucb"], replications=2)
    >>> advice.recommended
    'mp-ucb'
    """
    loaded = trace if isinstance(trace, Trace) else Trace.load(trace)
    folder = None if out is None else validation.path(out, "out", "folder")
    M = validation.whole(users, "users", 1, loaded.K)
    configured = candidates() if policies is None else [policy(one) for one in policies]
    for one in configured:
        if one.policy.knows & {PARAMETERS, STATES_SEEN}:
            raise InputError(f"policy {one.label}: knows more than a base station does; choose another to recommend")
        if CONTEXTS_SEEN in one.policy.knows and loaded.contexts is None:
            raise InputError(f"policy {one.label}: uses contexts, which the trace does not have; choose another")
    replayed = scenario(trace if isinstance(trace, Trace) else Path(trace), users=M)
    spec = experiment(replayed, configured, None, replications, seed)
    place, executor = None if folder is None else folder / "replay", executor_for(threads, client)
    study = run_experiment(spec, place, executor=executor, progress=progress)
    listed = configured if policies is None else policies
    written = {
        one.label: given if isinstance(given, str) and ".py:" in given else ""
        for one, given in zip(configured, listed, strict=True)
    }
    fit = None
    if loaded.T >= MIN_SLOTS:
        progress.message("fitting channel models to the trace")
        fit = loaded.fit(users=M, name=replayed.name)
    advice = _advice(loaded, study, written, fit)
    if folder is not None:
        from idleband.advice.report import write_report

        write_report(advice, folder)
    return advice


def _advice(trace: Trace, study: Study, written: Mapping[str, str], fit: TraceFit | None) -> Advice:
    """Return the recommendation that follows from the replays of the policies with these labels.

    `written` has by label how a policy from a user's file was given, and an empty text for the policies of the package.
    """
    results = sorted(
        (result for result in study.results if result.label in written),
        key=lambda one: -float(one.reward[:, -1].mean()),
    )
    best, M = results[0], study.scenario.users
    genie = float((best.reward + best.regret("genie"))[:, -1].mean())
    replays = tuple(
        PolicyReplay(
            result.label,
            float(result.reward[:, -1].mean()) / result.horizon,
            float(result.reward[:, -1].mean()) / genie,
            float(result.curves["collisions"][:, -1].mean()) / result.horizon / M,
            None if result is best else study.difference(best.label, result.label, per_slot=True),
            float("nan") if result.seconds is None else 1e6 * float(result.seconds.mean()) / result.horizon,
        )
        for result in results
    )
    static = float((best.reward + best.regret("static"))[:, -1].mean())
    recommended, reason = _choice(replays)
    return Advice(
        recommended,
        reason,
        serve_command(recommended, trace, M, written[recommended]),
        replays,
        {
            "best fixed set per block": best.block_reference() * best.horizon / genie,
            "best fixed set in hindsight": static / genie,
        },
        trace,
        trace.statistics(),
        fit,
        study,
    )


def _choice(replays: Sequence[PolicyReplay]) -> tuple[str, str]:
    """Return the label of the recommended policy and the reason."""
    best = replays[0]
    preferred = next((one for one in replays if one.label == PREFERRED), None)
    if preferred is None or preferred is best or preferred.clearly_behind:
        return best.label, f"It earned the highest reward on this recording: {best.share_of_genie:.2%} of the genie's."
    return PREFERRED, (
        "It has no parameter to tune, and no policy earned clearly more on this recording:"
        f" {preferred.share_of_genie:.2%} of the genie's reward, {best.share_of_genie:.2%} for {best.label}."
    )


def serve_command(label: str, trace: Trace, users: int, written: str = "") -> str:
    """Return the command that runs a policy for the channels of a trace; `written` is FILE.py:NAME of a user's policy.

    >>> serve_command("mp-ucb L=1.0", Trace.from_arrays(busy=[[0, 1], [1, 0]]), 1)
    'idleband serve --data live --policy mp-ucb:L=1.0 --channels 2 --users 1'
    """
    name, _, parameters = label.partition(" ")
    chosen = written or f"{name}:{','.join(parameters.split())}".rstrip(":")
    words = ["idleband", "serve", "--data", "live", "--policy", chosen]
    words += ["--channels", str(trace.K), "--users", str(users)]
    if CONTEXTS_SEEN in policy(chosen).policy.knows and trace.contexts is not None:
        words += ["--dimension", str(trace.contexts.shape[2])]
    if trace.channel_names:
        words += ["--set", f"channel_names={','.join(trace.channel_names)}"]
    return shlex.join(words)
