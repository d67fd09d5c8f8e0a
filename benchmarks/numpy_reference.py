"""MP-UCB and MP-LUCB in plain NumPy: short, vectorised over channels, one slot at a time.

The compiled policies are compared with them in time and in results: in the same slots they select the same channels.
"""

import numpy as np


def top(index: np.ndarray, M: int) -> np.ndarray:
    """Return the M channels with the largest index, in ascending order; lower channels first among equal ones."""
    return np.sort(np.argsort(-index, kind="stable")[:M])


class UCB:
    """`mp-ucb`."""

    def __init__(self, K: int, M: int, d: int, L: float = 1.5) -> None:
        self.M, self.L = M, L
        self.total, self.plays = np.zeros(K), np.zeros(K)

    def select(self, t: int, x: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            index = self.total / self.plays + np.sqrt(self.L * np.log(t) / self.plays)
        return top(np.where(self.plays > 0, index, np.inf), self.M)

    def learn(self, picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
        self.total[picks] += r
        self.plays[picks] += 1


class LUCB:
    """`mp-lucb`: base mean, optimistic width, replacement by indicator; only states of played channels are observed."""

    def __init__(self, K: int, M: int, d: int, beta: float = 1.0) -> None:
        self.M, self.beta = M, beta
        self.A_inv, self.b = np.tile(np.eye(d), (K, 1, 1)), np.zeros((K, d))
        self.total_h, self.plays = np.zeros(K), np.zeros(K)

    def select(self, t: int, x: np.ndarray) -> np.ndarray:
        v = np.einsum("kij,kj->ki", self.A_inv, x)
        n_hat = np.einsum("ki,ki->k", v, self.b)
        delta = self.beta * np.sqrt(np.einsum("ki,ki->k", v, x))
        mean = self.total_h / np.maximum(self.plays, 1)
        picks = top(mean - n_hat + delta, self.M)
        return self.replace(picks, np.where(self.plays > 0, mean, 1.0) - n_hat)

    def replace(self, picks: np.ndarray, margin: np.ndarray) -> np.ndarray:
        for j in np.setdiff1d(np.arange(len(margin)), picks):
            if margin[j] >= 0:
                weak = np.flatnonzero((margin[picks] <= 0) & (margin[picks] < margin[j]))
                if len(weak):
                    picks[weak[0]] = j
        return picks

    def learn(self, picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
        v = np.einsum("kij,kj->ki", self.A_inv[picks], x[picks])
        scale = 1 + np.einsum("ki,ki->k", v, x[picks])
        self.A_inv[picks] -= v[:, :, None] * v[:, None, :] / scale[:, None, None]
        self.b[picks] += n[:, None] * x[picks]
        self.total_h[picks] += h
        self.plays[picks] += 1


POLICIES = {"mp-ucb": UCB, "mp-lucb": LUCB}


def simulate(policy: "UCB | LUCB", p01: np.ndarray, p10: np.ndarray, theta: np.ndarray, T: int, seed: int) -> float:
    """Simulate T slots with a linear perturbation model and the threshold reward; return the total reward."""
    rng = np.random.default_rng(seed)
    K = len(p01)
    good = rng.random(K) < p01 / (p01 + p10)
    total = 0.0
    for t in range(1, T + 1):
        u = rng.random(K)
        good = np.where(good, u >= p10, u < p01)
        x = rng.random((K, len(theta)))
        n = x @ theta
        picks = policy.select(t, x)
        h = np.where(good[picks], 1.0, 0.1)
        r = np.where(good[picks] - n[picks] > 0, 1.0, 0.1)
        policy.learn(picks, x, h, r, n[picks])
        total += float(r.sum())
    return total
