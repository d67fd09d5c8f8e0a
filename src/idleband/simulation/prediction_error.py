"""Compare the perturbation that a policy predicts with the true one, over time.

With noise the true one is f(x), the mean given the context, which is what can be predicted.

There are two errors, because a policy learns from what it plays: on played channels, as predicted before each slot; and
on fresh contexts of all channels, most of which a good policy avoids.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.binding import policy_errors
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.logistic import probability
from idleband.kernels.rng import FRESH, stream
from idleband.policies.protocol import Setup
from idleband.policies.registry import POLICIES, ConfiguredPolicy, PolicyLike
from idleband.policies.registry import policy as configured_policy
from idleband.progress import SILENT, Progress
from idleband.scenario.build import ScenarioLike
from idleband.scenario.build import scenario as build_scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.path import checkpoints
from idleband.simulation.result import Result
from idleband.simulation.run import PolicyRun, ReferenceRun
from idleband.simulation.simulate import check_size
from idleband.validation import WholeNumber

if TYPE_CHECKING:
    import pandas


FRESH_SLOTS = 500  # contexts per channel for the error on fresh contexts
DEFAULT_SLOTS = 50_000
MAX_SLOTS = 10**7  # running slot by slot is slow

# Placeholder: `compile.specialise` binds the function of a policy to this name.
predict: Callable[..., None] = NotImplemented


def predict_all(setup: Setup, state: Any, x: Floats, n_hat: Floats) -> None:
    """Write predictions for the contexts of several slots, x (slots, K, d), into n_hat (slots, K)."""
    for i in range(x.shape[0]):
        predict(setup, state, x[i], n_hat[i])


@dataclass(frozen=True, repr=False)
class Learned:
    """Predictions of one policy on one scenario. `idleband.learned` returns one.

    Errors are root mean squares relative to the standard deviation of the perturbation: 1 is no better than a constant.
    With noise, predictions are compared with f(x), and the standard deviation is that of f(x).

    Examples
    --------
    >>> import idleband as ib
    >>> found = ib.learned("S1", "mp-lucb", horizon=2000, replications=1)
    >>> bool(found.played_last[0] < 0.05)
    True
    """

    scenario: Scenario
    label: str
    seed: int
    t: Ints  # (C,) checkpoints
    played: Floats  # (R, C) error over the slots played since the checkpoint before; nan at slot 1
    fresh: Floats  # (R, C) error on fresh contexts, with the model as it was at the checkpoint
    played_last: Floats  # (R,) error over the slots played in the last tenth
    pairs_played: Floats  # (2, N) predicted and true, in the last tenth of the first replication
    pairs_fresh: Floats  # (2, N) the same on fresh contexts, with its model at the end

    @property
    def fresh_last(self) -> Floats:
        """Error on fresh contexts at the end, shape (R,)."""
        return self.fresh[:, -1]

    @property
    def replications(self) -> int:
        return len(self.played_last)

    @property
    def horizon(self) -> int:
        return int(self.t[-1])

    def __repr__(self) -> str:
        return (
            f"Learned({self.label} on {self.scenario.name}: error {root_mean_square(self.played_last):.1%} of the"
            f" perturbation's spread where it plays, {root_mean_square(self.fresh_last):.1%} on fresh contexts)"
        )

    def columns(self) -> dict[str, Any]:
        """Return a table as a dict of columns, one row per replication and checkpoint."""
        R, C = self.played.shape
        return {
            "scenario": [self.scenario.name] * (R * C),
            "label": [self.label] * (R * C),
            "replication": np.repeat(np.arange(R), C),
            "t": np.tile(self.t, R),
            "error_played": self.played.ravel(),
            "error_fresh": self.fresh.ravel(),
        }


def learned_csv(found: Sequence[Learned]) -> str:
    """Return a table as CSV, one row per policy, replication and checkpoint."""
    import pandas

    return str(pandas.concat([pandas.DataFrame(one.columns()) for one in found]).to_csv(index=False))


def root_mean_square(errors: Floats) -> float:
    """Return the root mean square over replications."""
    return float(np.sqrt(np.mean(np.square(errors))))


def learned(
    scenario: ScenarioLike,
    policy: PolicyLike,
    /,
    *,
    horizon: WholeNumber | None = None,
    replications: WholeNumber = 3,
    seed: WholeNumber = 0,
    progress: Progress = SILENT,
    **parameters: Any,
) -> Learned:
    """Run a policy that predicts the perturbation, and compare its predictions with the true perturbation.

    If the perturbation has noise, the true perturbation is f(x), without it. The policy learns from noisy measurements.

    Parameters
    ----------
    scenario : str, Path, dict or Scenario
        The scenario, as in `idleband.scenario`.
    policy : str, ConfiguredPolicy or class
        A policy with a perturbation model, such as "mp-lucb" or "mp-nucb".
    horizon : int, optional
        Number of slots, at most 10^7: slots are run one by one. The default is 50,000, or the number of slots of the
        trace if one is replayed.
    replications : int
        Number of independent replications.
    seed : int
        Seed of the random streams.
    progress : Progress
        Observer of the progress.
    **parameters
        Parameters of the policy.

    Returns
    -------
    Learned

    Raises
    ------
    InputError
        If the policy does not predict the perturbation, or there is none.
    """
    described, configured = build_scenario(scenario), configured_policy(policy, **parameters)
    T, R, seed = check_size(described, horizon, replications, seed, DEFAULT_SLOTS)
    check_predicts(described, configured, T)
    progress.expect(T * R)
    progress.compiling(configured.policy.name)
    marks = checkpoints(T)
    marks = marks[(marks <= 0.9 * T) | (marks == T)]  # so that the last interval is long enough
    runs = [_one(described, configured, T, seed, i, marks, progress) for i in range(R)]
    return Learned(
        described,
        configured.label,
        seed,
        marks,
        played=np.array([run[0] for run in runs]),
        fresh=np.array([run[1] for run in runs]),
        played_last=np.array([run[2] for run in runs]),
        pairs_played=runs[0][3],
        pairs_fresh=runs[0][4],
    )


def check_predicts(scenario: Scenario, configured: ConfiguredPolicy, T: int) -> None:
    """Refuse policies and scenarios without a predicted perturbation, and long horizons."""
    if not 2 <= T <= MAX_SLOTS:
        raise InputError(
            f"experiment.horizon = {T}: must be from 2 to {MAX_SLOTS} here, where slots are run one by one"
        )
    if configured.policy.decentralised or scenario.uncoordinated is not None:
        raise InputError("scenario.users.coordination: prediction errors are only computed with a base station")
    if configured.policy.predict is None:
        able = ", ".join(name for name, p in POLICIES.items() if p.predict is not None)
        raise InputError(
            f"policy {configured.policy.name}: has no model of the perturbation; policies that have one: {able}"
        )
    if configured.values.get("target") == "reward":
        raise InputError(f"policy {configured.policy.name}: target = reward: it does not predict the perturbation")
    if scenario.feedback == "reward" and scenario.reward == "threshold":
        raise InputError(
            "scenario.feedback = reward: policies learn a probability from the threshold reward, not the perturbation;"
            " must be perturbation here"
        )
    if scenario.perturbation.kind == "none":
        raise InputError("scenario.perturbation.kind = none: there is nothing to learn; must be another model here")
    if scenario.perturbation.drift:
        raise InputError(
            "scenario.perturbation.drift: fresh contexts need a perturbation that stays; leave it out here"
        )


def _one(
    scenario: Scenario,
    configured: ConfiguredPolicy,
    T: int,
    seed: int,
    replication: int,
    marks: Ints,
    progress: Progress,
) -> tuple[Floats, Floats, float, Floats, Floats]:
    """Run one replication; return errors at checkpoints and in the last tenth, and pairs of predicted and true."""
    run = PolicyRun.start(scenario, configured, T, seed, replication)
    ahead = ReferenceRun.start(scenario, T, seed, replication)  # the same path, one slot ahead of the policy
    predictions = _predictions(configured.policy.predict, configured.policy.source is None)
    fresh_x, fresh_f = _fresh_contexts(scenario, seed, replication)
    spread = float(fresh_f.std())
    if spread == 0.0:
        raise InputError("scenario.perturbation: does not vary with the context; there is nothing to learn")
    n_hat, fresh_hat = np.zeros((1, scenario.K)), np.zeros_like(fresh_f)
    errors_played, errors_fresh = np.full(len(marks), np.nan), np.full(len(marks), np.nan)
    squares, count, cursor = 0.0, 0, 0
    last: list[Floats] = []
    for t in range(1, T + 1):
        ahead.to(t)
        with policy_errors(configured.policy):
            compile.call(predictions, run.setup, run.state, ahead.path.x[None], n_hat)
        run.to(t)
        picks = run.tally.picks[: run.tally.picked[0]]
        pairs = np.array([n_hat[0, picks], run.path.f[picks]])
        if t > 1:  # networks draw their weights in the first slot
            squares += float(np.square(pairs[0] - pairs[1]).sum())
            count += len(picks)
        if 10 * t > 9 * T:
            last.append(pairs)
        if t == marks[cursor]:
            compile.call(predictions, run.setup, run.state, fresh_x, fresh_hat)
            errors_fresh[cursor] = np.sqrt(np.mean(np.square(fresh_hat - fresh_f))) / spread
            errors_played[cursor] = np.sqrt(squares / count) / spread if count else np.nan
            squares, count, cursor = 0.0, 0, cursor + 1
        if t % 1000 == 0 or t == T:
            progress.advance((t - 1) % 1000 + 1)
    played = np.concatenate(last, axis=1)
    played_last = float(np.sqrt(np.mean(np.square(played[0] - played[1])))) / spread if played.size else np.nan
    return errors_played, errors_fresh, played_last, played, np.array([fresh_hat.ravel(), fresh_f.ravel()])


def _fresh_contexts(scenario: Scenario, seed: int, replication: int) -> tuple[Floats, Floats]:
    """Return contexts (slots, K, d) that no policy observes, and their perturbations without noise (slots, K)."""
    fresh = ReferenceRun.start(scenario, FRESH_SLOTS, seed, replication)
    fresh.path.context_rng[:] = stream(seed, replication, FRESH)
    x, f = np.zeros((FRESH_SLOTS, scenario.K, scenario.dimension)), np.zeros((FRESH_SLOTS, scenario.K))
    for i in range(FRESH_SLOTS):
        fresh.to(i + 1)
        x[i], f[i] = fresh.path.x, fresh.path.f
    return x, f


@cache
def _predictions(function: Any, built_in: bool) -> Any:
    """Return `predict_all` for the function of a policy; a user's function runs interpreted."""
    if not built_in:
        return compile.interpreted(predict_all, "predict_all", {"predict": getattr(function, "py_func", function)})
    return compile.specialise(
        predict_all, f"predict_all_{function.__module__.replace('.', '_')}", {"predict": function}
    )


WITH_CHAINS = ("mp-belief", "mp-belief-lucb", "mp-belief-nucb", "mp-adaptive")


def learned_chains(result: Result, level: float = 0.95) -> "pandas.DataFrame":
    """Return what a belief policy has learned of p01 and p10 at the end of a run.

    Parameters
    ----------
    result : Result
        A result of mp-belief, mp-belief-lucb, mp-belief-nucb or mp-adaptive that `idleband.simulate` returned.
    level : float
        Level of the credible intervals.

    Returns
    -------
    pandas.DataFrame
        One row per replication and two-state channel, with the true values, the estimates and credible intervals.

    Raises
    ------
    InputError
        If the result has no such state, for example because it was loaded from a folder.

    Examples
    --------
    >>> import idleband as ib
    >>> result = ib.simulate("S4", "mp-belief", horizon=2000, replications=1)
    >>> table = ib.learned_chains(result)
    >>> table.channel_name[0], float(table.p01[0])
    ('ch1', 0.02)
    """
    import pandas

    if result.state is None or not all(hasattr(state, "chains") for state in result.state):
        raise InputError(
            f"policy {result.policy}: has no learned chains, or its state was not kept (stored studies do not contain"
            f" it); must be a result of ib.simulate for {', '.join(WITH_CHAINS[:-1])} or {WITH_CHAINS[-1]}"
        )
    from scipy.special import ndtri  # slow to import, and not always needed

    z = float(ndtri(0.5 + validation.number(level, "level", 0, 1, above=True) / 2))
    rows = []
    for replication, state in enumerate(result.state):
        mode, spread = state.chains.mode, state.chains.spread
        for k, P in enumerate(result.scenario.marginal_transition):
            if len(P) != 2:
                continue
            row: dict[str, Any] = {"replication": replication, "channel": k}
            if result.scenario.channel_names:
                row["channel_name"] = result.scenario.channel_names[k]
            widths = z * spread[k, 0], z * float(np.hypot(spread[k, 1], spread[k, 2]))
            for name, true, middle, half in zip(("p01", "p10"), (P[0, 1], P[1, 0]), mode[k], widths, strict=True):
                estimates = (middle, middle - half, middle + half)
                row |= {name: true} | dict(
                    zip((f"{name}_learned", f"{name}_low", f"{name}_high"), map(probability, estimates), strict=True)
                )
            rows.append(row)
    return pandas.DataFrame(rows)
