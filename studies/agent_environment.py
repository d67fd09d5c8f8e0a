"""Copies of a scenario as an agent of reinforcement learning sees them: numbers per channel, episode after episode.

Built on the vector environment of Gymnasium, `idleband/Channels-v1`. It needs Gymnasium only; the study that trains
agents is reinforcement_learning.py. What it adds to an observation is computed from this and earlier observations:

state          last observed state: 1 idle, -1 busy, 0 before the first observation
decayed        state times exp(-age / 4), exp(-age / 16) and exp(-age / 64)
age            log(1 + age) / 5, at most 1.5
regression     prediction of a linear regression of the measured perturbations of the channel in this episode, and its
               uncertainty q / (1 + q), as mp-belief-lucb learns it; only if it is asked for

A recurrent agent observes a summary of the plays of the slot before in addition: the share of them that found an idle
channel, their mean reward and, with contexts x and perturbations n, the means of n, of x - 1/2 and of n (x - 1/2).
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from idleband.arrays import Flags, Floats
from idleband.kernels import ridge
from idleband.kernels.compile import jit
from idleband.scenario.scenario import Scenario

Features = npt.NDArray[np.float32]

DECAYS = (4.0, 16.0, 64.0)  # slots
PENALTY = 0.01  # of the regression, that of mp-belief-lucb
LOW, HIGH = -1.0, 3.0  # limits of perturbations and predictions


class Turn(NamedTuple):
    """What `AgentEnvironment.step` returns."""

    features: Features  # (N, K, F) of the next slot; of the first slot of the next episode if `last` is given
    rewards: Floats  # (N,)
    last: tuple[Features, Features] | None  # features and summary after the last slot of an episode


class AgentEnvironment:
    """N copies of a scenario; when an episode ends, the next one starts in the same step.

    Parameters
    ----------
    scenario
        The scenario. Played channels are observed.
    copies
        Number of copies, on the replications 0 to N - 1 of the seed, then on N to 2N - 1, and so forth.
    horizon
        Slots of an episode.
    seed
        Seed of the sample paths.
    actions
        "channels" or "scores", as in the environment.
    regression
        Whether the prediction of the perturbation is among the features.

    Examples
    --------
    >>> import idleband as ib
    >>> environment = AgentEnvironment(ib.scenario("S1"), copies=2, horizon=100, seed=0)
    >>> environment.reset().shape
    (2, 10, 17)
    >>> environment.step(np.ones((2, 10), np.int8)).rewards.shape
    (2,)
    """

    def __init__(
        self,
        scenario: Scenario,
        copies: int,
        horizon: int,
        seed: int,
        actions: str = "channels",
        regression: bool = False,
    ) -> None:
        self.scenario, self.copies, self.horizon, self.seed = scenario, copies, horizon, seed
        self.contextual = scenario.perturbation.model.name != "none"
        self.regression = Regression(copies, scenario.K, scenario.dimension) if regression else None
        self._inner: Any = gymnasium.make_vec(
            "idleband/Channels-v1", num_envs=copies, scenario=scenario, horizon=horizon, actions=actions
        )
        self._layout = self._inner.layout
        self._idle_action = np.zeros((copies, scenario.K), np.int8)
        self._contexts = np.zeros((copies, scenario.K, scenario.dimension))
        self.summary = np.zeros((copies, self.summary_size), np.float32)

    @property
    def summary_size(self) -> int:
        """Number of entries of a summary."""
        return 2 + (2 * self.scenario.dimension + 1 if self.contextual else 0)

    @property
    def size(self) -> int:
        """F, the number of features of a channel."""
        return (self.scenario.dimension + 1 if self.contextual else 0) + 8 + (2 if self.regression else 0)

    def reset(self) -> Features:
        """Start the first episodes; return the features of slot 1, shape (N, K, F)."""
        observations, _ = self._inner.reset(seed=self.seed)
        return self._begin(observations)

    def step(self, actions: Any) -> Turn:
        """Play a slot in every copy; actions have the shape (N, K)."""
        observations, rewards, _, truncations, _ = self._inner.step(actions)
        played = self._part(observations, "played")
        if self.regression is not None:
            self.regression.learn(self._contexts, self._part(observations, "perturbation"), played > 0.0)
        self.summary = self._summary(observations, played / played.sum(axis=1, keepdims=True))
        features = self._features(observations)
        if not truncations[0]:
            return Turn(features, rewards, None)
        last = features, self.summary
        observations, *_ = self._inner.step(self._idle_action)  # starts the next episodes
        return Turn(self._begin(observations), rewards, last)

    def close(self) -> None:
        """Close the environment."""
        self._inner.close()

    def _begin(self, observations: Features) -> Features:
        if self.regression is not None:
            self.regression.forget()
        self.summary = np.zeros((self.copies, self.summary_size), np.float32)
        return self._features(observations)

    def _summary(self, observations: Features, shares: Floats) -> Features:
        """Return the means over the channels that were played; before the features of the next slot are computed."""
        means = [(shares * self._part(observations, name)).sum(axis=1) for name in ("last_state", "last_reward")]
        found = np.stack(means, axis=1)
        if self.contextual:
            n = shares * np.clip(self._part(observations, "perturbation"), LOW, HIGH)
            products = [np.einsum("nk,nki->ni", weights, self._contexts - 0.5) for weights in (n, shares)]
            found = np.concatenate([found, n.sum(axis=1, keepdims=True), *products], axis=1)
        return found.astype(np.float32)

    def _part(self, observations: Features, name: str) -> Floats:
        return observations[:, self._layout[name]].astype(np.float64)

    def _features(self, observations: Features) -> Features:
        N, K = self.copies, self.scenario.K
        recency = self._part(observations, "recency")
        state = np.where(recency > 0.0, 2.0 * self._part(observations, "last_state") - 1.0, 0.0)
        age = np.where(recency > 0.0, 1.0 / np.maximum(recency, 1e-9), 1e9)
        found = [self._part(observations, "played"), state, *(state * np.exp(-age / decay) for decay in DECAYS)]
        found += [np.minimum(1.5, np.log1p(age) / 5.0)]
        found += [self._part(observations, "last_reward"), self._part(observations, "mean_reward")]
        if self.contextual:
            self._contexts = self._part(observations, "contexts").reshape(N, K, -1)
            found.append(np.clip(self._part(observations, "perturbation"), LOW, HIGH))
            found += [2.0 * self._contexts[:, :, i] - 1.0 for i in range(self._contexts.shape[2])]
        if self.regression is not None:
            found += self.regression.predict(self._contexts)
        return np.stack(found, axis=2).astype(np.float32)


class Regression:
    """A linear regression of the perturbation on the contexts for each channel of each copy, learned play by play."""

    def __init__(self, copies: int, K: int, dimension: int) -> None:
        D = dimension + 1  # a constant is appended
        self._A_inv, self._theta = np.zeros((copies, K, D, D)), np.zeros((copies, K, D))
        self._x, self._v = np.ones((copies, K, D)), np.zeros((K, D))
        self.forget()

    def forget(self) -> None:
        """Return to the prior."""
        self._A_inv[:] = np.eye(self._theta.shape[2]) / PENALTY
        self._theta[:] = 0.0

    def learn(self, contexts: Floats, perturbations: Floats, played: Flags) -> None:
        """Learn what played channels returned; contexts (N, K, d), the others (N, K)."""
        self._x[:, :, :-1] = contexts
        learn_copies(self._A_inv, self._theta, self._x, self._v, perturbations, played)

    def predict(self, contexts: Floats) -> list[Floats]:
        """Return the predictions and q / (1 + q), each of shape (N, K)."""
        self._x[:, :, :-1] = contexts
        predicted, uncertain = np.empty(contexts.shape[:2]), np.empty(contexts.shape[:2])
        predict_copies(self._A_inv, self._theta, self._x, self._v, predicted, uncertain)
        return [np.clip(predicted, LOW, HIGH), uncertain]


@jit
def learn_copies(A_inv: Floats, theta: Floats, x: Floats, v: Floats, perturbations: Floats, played: Flags) -> None:
    """Update the model of every played channel of every copy."""
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            if played[i, k]:
                q = ridge.width_squared(A_inv[i], k, x[i], k, v, k)
                error = perturbations[i, k] - ridge.predict(theta[i], k, x[i], k)
                ridge.learn(A_inv[i], theta[i], k, v, k, q, error)


@jit
def predict_copies(A_inv: Floats, theta: Floats, x: Floats, v: Floats, predicted: Floats, uncertain: Floats) -> None:
    """Write the prediction of every channel of every copy, and its uncertainty."""
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            q = ridge.width_squared(A_inv[i], k, x[i], k, v, k)
            predicted[i, k] = ridge.predict(theta[i], k, x[i], k)
            uncertain[i, k] = q / (1.0 + q)
