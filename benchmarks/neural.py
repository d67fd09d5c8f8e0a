"""Compare MP-NUCB with a floor: the same number of multiply-adds in a plain compiled matrix-vector loop.

    python benchmarks/neural.py

K = 10, M = 5, d = 8, L = 2, D = 16, one step of Adam per slot for each channel played. Where PyTorch is
installed, a straightforward version of the same policy is measured as well.

Multiply-adds per slot: I = 9 inputs, U = I + 1 = 10 weights per neuron, P = 16 U = 160 weights, B = 16 samples per
step, a = nonzero gradient entries, measured (about half of P):

    predictions        K (I D + D)
    gradients          K a
    training           M (B ((I D + D) + D + (I D + D)) + 6 P)      forward, deltas, gradients; 6 per weight in Adam:
                                                                    a square root or division counts as one
    full               K a P + M (P^2 + a P / 2 + P^2 / 64)         A^-1 g; rank-one update; half of A; its new inverse
    block              K a U + M (a U + a U / 2 + a U / 64)         the same within the blocks of active neurons
    diagonal           K 2 P + M 2 P

The floor of the first three lines uses 10 x 16 matrices, the size of the networks; that of a covariance uses matrices
of its size and number, that of a diagonal 10 x 16 matrices. Each floor is the better of two plain loops, by rows and by
columns. Best times are compared, because other work on the machine can only make a loop slower.
"""

import importlib.util
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

import idleband as ib
from idleband.kernels.compile import OPTIONS
from idleband.kernels.memory import aligned
from idleband.simulation.run import PolicyRun

ROUNDS, SLOTS = 40, 1000
K, M, INPUTS, D, B = 10, 5, 9, 16, 16
U, P = INPUTS + 1, (INPUTS + 1) * D


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
def by_rows(A: npt.NDArray[np.float64], x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], times: int) -> None:
    """Compute y = x' A for every matrix, `times` times; the inner loop adds a row to y."""
    for _ in range(times):
        for m in range(A.shape[0]):
            for j in range(A.shape[2]):
                y[m, j] = 0.0
            for i in range(A.shape[1]):
                x_i = x[m, i]
                for j in range(A.shape[2]):
                    y[m, j] += A[m, i, j] * x_i


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
def by_columns(A: npt.NDArray[np.float64], x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], times: int) -> None:
    """Compute y = A x for every matrix, `times` times; the inner loop is a dot product."""
    for _ in range(times):
        for m in range(A.shape[0]):
            for i in range(A.shape[1]):
                total = 0.0
                for j in range(A.shape[2]):
                    total += A[m, i, j] * x[m, j]
                y[m, i] = total


class Floor:
    """Time per multiply-add in products with a number of matrices of one size."""

    def __init__(self, matrices: int, rows: int, columns: int) -> None:
        size = max(rows, columns)
        self.A, self.x, self.y = (
            aligned((matrices, rows, columns)),
            aligned((matrices, size)),
            aligned((matrices, size)),
        )
        self.A += 0.5
        self.x += 0.5
        self.times = max(1, 4_000_000 // self.A.size)
        self.best = float("inf")
        self.loops: tuple[Callable[..., None], ...] = (by_rows, by_columns)
        for loop in self.loops:
            loop(self.A, self.x, self.y, 1)

    def measure(self) -> None:
        for loop in self.loops:
            began = perf_counter()
            loop(self.A, self.x, self.y, self.times)
            self.best = min(self.best, (perf_counter() - began) / (self.times * self.A.size))


class Loop:
    """Time per slot of mp-nucb, and its number of nonzero gradient entries."""

    def __init__(self, covariance: str) -> None:
        configured = ib.policy("mp-nucb", covariance=covariance)
        self.run = PolicyRun.start(ib.scenario("S1"), configured, 4000 + ROUNDS * SLOTS, 0, 0)
        self.run.to(4000)  # train the networks first, as in most of a run
        self.best = float("inf")
        self.active: list[float] = []

    def measure(self) -> None:
        began = perf_counter()
        self.run.to(self.run.at + SLOTS)
        self.best = min(self.best, (perf_counter() - began) / SLOTS)
        self.active.append(float(self.run.state.vectors.filled.sum(axis=1).mean()))


def main() -> None:
    network_floor = Floor(K, U, D)
    floors = {"full": Floor(K, P, P), "block": Floor(K * D, U, U), "diagonal": network_floor}
    loops = {covariance: Loop(covariance) for covariance in floors}
    for _ in range(ROUNDS):
        for floor in {id(f): f for f in (network_floor, *floors.values())}.values():
            floor.measure()
        for loop in loops.values():
            loop.measure()
    print("one core, S1: K = 10, M = 5, d = 8; L = 2, D = 16, batches of 16; best of", ROUNDS)
    print(
        f"{'covariance':12s} {'us per slot':>10s} {'slots/s':>9s} {'multiply-adds':>14s} {'floor us':>9s} {'ratio':>6s}"
    )
    for covariance, loop in loops.items():
        a = float(np.mean(loop.active))
        network = K * (INPUTS * D + D) + K * a + M * (B * (2 * (INPUTS * D + D) + D) + 6 * P)
        matrices = {
            "full": K * a * P + M * (P * P + a * P / 2 + P * P / 64),
            "block": K * a * U + M * (a * U + a * U / 2 + a * U / 64),
            "diagonal": K * 2 * P + M * 2 * P,
        }[covariance]
        floor_time = network * network_floor.best + matrices * floors[covariance].best
        print(
            f"{covariance:12s} {loop.best * 1e6:10.2f} {1 / loop.best:9,.0f} {network + matrices:14,.0f}"
            f" {floor_time * 1e6:9.2f} {loop.best / floor_time:6.2f}"
        )
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: no comparison with it")
        return
    reference: Any = importlib.import_module("torch_reference")
    seconds = reference.seconds_per_slot()
    print(
        f"{'PyTorch':12s} {seconds * 1e6:10.0f} {1 / seconds:9,.0f}   full covariance: mp-nucb is"
        f" {seconds / loops['full'].best:.0f} times as fast"
    )


if __name__ == "__main__":
    main()
