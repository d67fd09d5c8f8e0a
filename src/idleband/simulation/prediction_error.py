"""What a policy has learned of the perturbation: its predictions beside the truth, and their error over time.

Two errors, because a policy learns where it plays: on the slots played, as predicted before each slot; and on fresh
contexts of all channels, most of which a good policy avoids.
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
from idleband.policies.protocol import Policy, Setup
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy
from idleband.progress import SILENT, Progress
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.path import checkpoints
from idleband.simulation.result import Result
from idleband.simulation.run import PolicyRun, ReferenceRun
from idleband.simulation.simulate import check_size

if TYPE_CHECKING:
    import pandas


FRESH_SLOTS = 500  # contexts of every channel on which the model is tried
MAX_SLOTS = 10**7  # slot by slot is slow

# A stand-in: `compile.specialise` binds the function of a policy to this name.
predict: Callable[..., None] = NotImplemented


def predict_all(setup: Setup, state: Any, x: Floats, n_hat: Floats) -> None:
    """The predictions for the contexts of several slots, x (slots, K, d), into n_hat (slots, K)."""
    for i in range(x.shape[0]):
        predict(setup, state, x[i], n_hat[i])


@dataclass(frozen=True, repr=False)
class Learned:
    """Predictions of one policy on one scenario; `learned` makes one.

    Errors are root mean squares, as a share of the perturbation's standard deviation: 1 is no better than a constant.

    >>> found = learned("S1", "mp-lucb", horizon=2000, replications=1)
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
        """(R,) error on fresh contexts at the end."""
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
        """One row per replication and checkpoint."""
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
    """One row per policy, replication and checkpoint."""
    import pandas

    return str(pandas.concat([pandas.DataFrame(one.columns()) for one in found]).to_csv(index=False))


def root_mean_square(errors: Floats) -> float:
    """Over replications."""
    return float(np.sqrt(np.mean(np.square(errors))))


def learned(
    scenario: Any,
    policy_: "str | Policy | ConfiguredPolicy | type",
    /,
    *,
    horizon: Any = 50_000,
    replications: Any = 3,
    seed: Any = 0,
    progress: Progress = SILENT,
    **parameters: Any,
) -> Learned:
    """Run a policy that has a model of the perturbation, and compare its predictions with the truth.

    Keywords that are not named here are parameters of the policy; `progress` is told how many slots were just run.
    """
    world, case = make_scenario(scenario), policy(policy_, **parameters)
    T, R, seed = check_size(horizon, replications, seed)
    check_predicts(world, case, T)
    progress.expect(T * R)
    progress.compiling(case.policy.name)
    marks = checkpoints(T)
    marks = marks[(marks <= 0.9 * T) | (marks == T)]  # the last one has slots enough of its own, too
    runs = [_one(world, case, T, seed, i, marks, progress) for i in range(R)]
    return Learned(
        world,
        case.label,
        seed,
        marks,
        played=np.array([run[0] for run in runs]),
        fresh=np.array([run[1] for run in runs]),
        played_last=np.array([run[2] for run in runs]),
        pairs_played=runs[0][3],
        pairs_fresh=runs[0][4],
    )


def check_predicts(scenario: Scenario, case: ConfiguredPolicy, T: int) -> None:
    """Refuse what has no prediction of the size of the perturbation, or is too long."""
    if not 2 <= T <= MAX_SLOTS:
        raise InputError(
            f"experiment.horizon = {T}: must be from 2 to {MAX_SLOTS} here, where slots are run one by one"
        )
    if case.policy.predict is None:
        able = ", ".join(name for name, p in POLICIES.items() if p.predict is not None)
        raise InputError(f"policy {case.policy.name}: has no model of the perturbation; policies that have one: {able}")
    if case.values.get("target") == "reward":
        raise InputError(f"policy {case.policy.name}: target = reward: what it predicts is no perturbation")
    if scenario.feedback == "reward" and scenario.reward == "threshold":
        raise InputError(
            "scenario.feedback = reward: under the threshold reward a probability is learned from it, not a perturbation;"
            " must be perturbation here"
        )
    if scenario.perturbation.kind == "none":
        raise InputError("scenario.perturbation.kind = none: there is nothing to learn; must be another model here")


def _one(
    scenario: Scenario,
    case: ConfiguredPolicy,
    T: int,
    seed: int,
    replication: int,
    marks: Ints,
    progress: Progress,
) -> tuple[Floats, Floats, float, Floats, Floats]:
    """One replication: the errors at checkpoints, that of the last tenth, and pairs of predicted and true."""
    run = PolicyRun.start(scenario, case, T, seed, replication)
    ahead = ReferenceRun.start(scenario, T, seed, replication)  # the same path, one slot ahead of the policy
    predictions = _predictions(case.policy.predict, case.policy.source is None)
    fresh_x, fresh_n = _fresh_contexts(scenario, seed, replication)
    spread = float(fresh_n.std())
    if spread == 0.0:
        raise InputError("scenario.perturbation: does not vary with the context; there is nothing to learn")
    n_hat, fresh_hat = np.zeros((1, scenario.K)), np.zeros_like(fresh_n)
    errors_played, errors_fresh = np.full(len(marks), np.nan), np.full(len(marks), np.nan)
    squares, count, cursor = 0.0, 0, 0
    last: list[Floats] = []
    for t in range(1, T + 1):
        ahead.to(t)
        with policy_errors(case.policy):
            compile.call(predictions, run.setup, run.state, ahead.path.x[None], n_hat)
        run.to(t)
        picks = run.tally.picks[: run.tally.picked[0]]
        pairs = np.array([n_hat[0, picks], run.path.n[picks]])
        if t > 1:  # networks draw their weights in the first slot, and said nothing before
            squares += float(np.square(pairs[0] - pairs[1]).sum())
            count += len(picks)
        if 10 * t > 9 * T:
            last.append(pairs)
        if t == marks[cursor]:
            compile.call(predictions, run.setup, run.state, fresh_x, fresh_hat)
            errors_fresh[cursor] = np.sqrt(np.mean(np.square(fresh_hat - fresh_n))) / spread
            errors_played[cursor] = np.sqrt(squares / count) / spread if count else np.nan
            squares, count, cursor = 0.0, 0, cursor + 1
        if t % 1000 == 0 or t == T:
            progress.advance((t - 1) % 1000 + 1)
    played = np.concatenate(last, axis=1)
    played_last = float(np.sqrt(np.mean(np.square(played[0] - played[1])))) / spread if played.size else np.nan
    return errors_played, errors_fresh, played_last, played, np.array([fresh_hat.ravel(), fresh_n.ravel()])


def _fresh_contexts(scenario: Scenario, seed: int, replication: int) -> tuple[Floats, Floats]:
    """Contexts (slots, K, d) that no policy sees, and their perturbations (slots, K)."""
    walk = ReferenceRun.start(scenario, FRESH_SLOTS, seed, replication)
    walk.path.context_rng[:] = stream(seed, replication, FRESH)
    x, n = np.zeros((FRESH_SLOTS, scenario.K, scenario.dimension)), np.zeros((FRESH_SLOTS, scenario.K))
    for i in range(FRESH_SLOTS):
        walk.to(i + 1)
        x[i], n[i] = walk.path.x, walk.path.n
    return x, n


@cache
def _predictions(function: Any, built_in: bool) -> Any:
    """`predict_all` for the function of a policy; a user's own runs interpreted."""
    if not built_in:
        return compile.interpreted(predict_all, "predict_all", {"predict": getattr(function, "py_func", function)})
    return compile.specialise(
        predict_all, f"predict_all_{function.__module__.replace('.', '_')}", {"predict": function}
    )


def learned_chains(result: Result, level: float = 0.95) -> "pandas.DataFrame":
    """What a belief policy had learned of p01 and p10 at the end of a run, with credible intervals, beside the truth:
    one row per replication and two-state channel (numbered from 0).

    >>> from idleband import simulate
    >>> result = simulate("S4", "mp-belief", horizon=2000, replications=1)
    >>> learned_chains(result).loc[0, ["channel", "p01"]].tolist()
    [0.0, 0.02]
    """
    import pandas

    if result.state is None or not all(hasattr(state, "chains") for state in result.state):
        raise InputError(
            f"policy {result.policy}: keeps no chains, or its states are not kept (in a stored study they are not);"
            " must be a fresh run of mp-belief, mp-belief-lucb or mp-belief-nucb"
        )
    from scipy.special import ndtri  # slow to import, and not always needed

    z = float(ndtri(0.5 + validation.number(level, "level", 0, 1, above=True) / 2))
    rows = []
    for replication, state in enumerate(result.state):
        mode, spread = state.chains.mode, state.chains.spread
        for k, P in enumerate(result.scenario.transition):
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
