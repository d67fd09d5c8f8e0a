"""Count the work per slot of every policy, and compare measured times with the time that this work needs at least.

    python benchmarks/work_per_slot.py                              # writes work_per_slot.md beside this file
    python benchmarks/work_per_slot.py --gpu rates.json             # with slots per second of an NVIDIA H200, by policy
    python benchmarks/work_per_slot.py --bench bench.json           # of `idleband bench --json`, instead of measuring
    python benchmarks/work_per_slot.py --counted                    # with the counts in work_per_slot.json
    IDLEBAND_CACHE_DIR=FOLDER python benchmarks/work_per_slot.py --assembly      # with an empty FOLDER

counting.py runs the source of the loop and of a policy with counters, on slots 2001 to 2100 of S1 (fewer of slow
policies), after the compiled loop has run the first 2,000. Per slot:

    multiply-adds    the larger of the numbers of additions and of multiplications of floats
    divisions        divisions and square roots
    functions        logarithms, exponentials, cosines and others
    random numbers   of 64 bits
    bytes            of different array elements that are read, and of those that are written
    carried          bytes that a slot reads and writes of what earlier slots have left and later ones change: all that
                     would have to be read and written if a slot had everything else in registers

Rates of this core are measured in the same run, by compiled loops over arrays of 8 to 16 KiB, 512 KiB for the second
level cache. The floor is the sum of the arithmetic at these rates, or the bytes at the bandwidth of the first
level cache (of the second, if they do not fit), whichever takes longer. It leaves out comparisons, integer arithmetic,
branches and every wait of an operation for the result of another one.
"""

import argparse
import datetime
import json
import math
import platform
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import counting
import numpy as np
from machine import processor, restart_on_one_core
from numba import njit

import idleband as ib
from idleband.experiments.spec import every_policy
from idleband.kernels import ridge, selection
from idleband.kernels.rng import fill_uniform, stream
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy
from idleband.simulation import loop
from idleband.simulation.bench import BARE, bench
from idleband.simulation.run import PolicyRun

FIRST, SLOTS, SECONDS = 2000, 100, 4.0  # slots before counting, slots counted, and the time for them
L1_BYTES = 32 * 1024  # more than this is taken to come from the second level cache
FUNCTIONS = ("log", "log1p", "exp", "expm1", "cos", "sin", "erf", "erfc", "power", "tanh", "lgamma", "atan2")

# NVIDIA H200: float64 multiply-adds per second without tensor cores (33.5 TFLOP/s, data sheet), and bytes per second
# of its memory as measured.
H200_MULTIPLY_ADDS, H200_BYTES = 33.5e12 / 2, 4.3e12


class Work(NamedTuple):
    """Work per slot."""

    multiply_adds: float
    multiplications: float
    divisions: float
    functions: float
    comparisons: float
    random: float
    read: float  # bytes
    written: float
    carried: float
    slots: int  # on which it was counted


def count(scenario: ib.Scenario, configured: ConfiguredPolicy, slots: int = SLOTS, seconds: float = SECONDS) -> Work:
    """Count the work of a policy per slot."""
    run = PolicyRun.start(scenario, configured, FIRST + slots, 0, 0)
    run.to(FIRST)
    functions = {"select": configured.policy.select, "update": configured.policy.update}
    step = counting.counted(loop.run, functions)
    counting.reset()
    read, written, before = [], [], []  # sets of addresses in each slot; before: read before they were written
    done = 0
    began = perf_counter()
    while done < slots and (done < 2 or perf_counter() - began < seconds):
        counting.new_slot()
        at = FIRST + done
        with np.errstate(over="ignore"):
            assert step(run.setup, run.path, run.state, run.rng, run.tally, at, at + 1) == 0
        read.append(set(counting.READ))
        written.append(set(counting.WRITTEN))
        before.append(set(counting.READ_FIRST))
        done += 1
    changed, needed = set().union(*written), set().union(*before)
    carried = sum(len(b & changed) + len(w & needed) for b, w in zip(before, written, strict=True))
    n: Counter[str] = Counter({kind: number / done for kind, number in counting.COUNTS.items()})
    return Work(
        multiply_adds=max(n["add"], n["multiply"]),
        multiplications=n["multiply"],
        divisions=n["divide"] + n["sqrt"],
        functions=sum(n[name] for name in FUNCTIONS),
        comparisons=n["compare"],
        random=n["mix"] / 2,
        read=8 * sum(map(len, read)) / done,
        written=8 * sum(map(len, written)) / done,
        carried=8 * carried / done,
        slots=done,
    )


# --- as a function of K, M and d -------------------------------------------------------------------------------------

SIZES = [(6, 2, 4), (6, 3, 16), (10, 2, 8), (10, 5, 8), (10, 5, 16), (12, 4, 12), (14, 6, 8), (16, 5, 4), (16, 8, 12)]
TERMS: dict[str, Callable[[int, int, int], float]] = {
    "1": lambda K, M, d: 1,
    "K": lambda K, M, d: K,
    "M": lambda K, M, d: M,
    "K d": lambda K, M, d: K * d,
    "M d": lambda K, M, d: M * d,
    "K d²": lambda K, M, d: K * d * d,
    "M d²": lambda K, M, d: M * d * d,
}


def sized(K: int, M: int, d: int) -> ib.Scenario:
    """Return a scenario like S1 of another size."""
    rng = np.random.default_rng(K)
    p01, p10 = rng.uniform(0.01, 0.1, (2, K)).round(3)
    return ib.scenario(
        p01=p01.tolist(), p10=p10.tolist(), users=M, context={"dimension": d}, name=f"{K} channels",
        perturbation={"theta": [1.4 / d] * d},
    )  # fmt: skip


def formula(configured: ConfiguredPolicy) -> str:
    """Return the number of multiplications as a polynomial, or "" if it is none."""
    values = np.array([count(sized(*size), configured, 20, 1.0).multiplications for size in SIZES])
    names = list(TERMS)
    while names:
        A = np.array([[TERMS[name](*size) for name in names] for size in SIZES], float)
        weights = np.linalg.lstsq(A, values, rcond=None)[0]
        if np.abs(A @ weights / values - 1).max() > 0.02:
            return ""
        shares = np.abs(A * weights).max(axis=0) / values.max()
        if shares.min() > 0.01:
            break
        names.pop(int(shares.argmin()))
    if (weights < 0).any():
        return ""
    terms = [term(float(w), name) for w, name in zip(weights, names, strict=True)]
    return " + ".join(reversed(terms))


def term(weight: float, name: str) -> str:
    if name == "1":
        return f"{weight:.3g}"
    return name if abs(weight - 1) < 0.05 else f"{weight:.2g} {name}"


# --- rates of this core ----------------------------------------------------------------------------------------------


def kernel(*options: str) -> Any:
    return njit(fastmath=set(options), error_model="numpy")


@kernel("contract")  # type: ignore[untyped-decorator]
def multiply_add_all(times: int, a: np.ndarray, out: np.ndarray) -> None:
    for _ in range(times):
        for i in range(out.size):
            x = out[i]
            x = x * 0.5 + 0.1
            x = x * 0.5 + 0.1
            x = x * 0.5 + 0.1
            x = x * 0.5 + 0.1
            x = x * 0.5 + 0.1
            x = x * 0.5 + 0.1
            x = x * 0.5 + 0.1
            out[i] = x * 0.5 + 0.1


@kernel()  # type: ignore[untyped-decorator]
def divide_all(times: int, a: np.ndarray, out: np.ndarray) -> None:
    for _ in range(times):
        for i in range(out.size):
            out[i] = a[i] / out[i]


@kernel()  # type: ignore[untyped-decorator]
def log_all(times: int, a: np.ndarray, out: np.ndarray) -> None:
    for _ in range(times):
        for i in range(out.size):
            out[i] = math.log(a[i])


@kernel("reassoc", "nsz")  # type: ignore[untyped-decorator]
def sum_all(times: int, a: np.ndarray, out: np.ndarray) -> None:
    for n in range(times):
        total = 0.0
        for i in range(a.size):
            total += a[i]
        a[n & 7] = total * 1e-9  # so that the sums differ


@kernel()  # type: ignore[untyped-decorator]
def add_chain(times: int, a: np.ndarray, out: np.ndarray) -> None:
    for n in range(times):
        total = 0.0
        for i in range(a.size):
            total += a[i]
        a[n & 7] = total * 1e-9


@kernel()  # type: ignore[untyped-decorator]
def divide_chain(times: int, a: np.ndarray, out: np.ndarray) -> None:
    value = 1.0
    for _ in range(times):
        for i in range(a.size):
            value = a[i] / value
    out[0] = value


def random_filler() -> Any:
    fill = fill_uniform.dispatcher

    @kernel()  # type: ignore[untyped-decorator]
    def random_all(times: int, rng: np.ndarray, out: np.ndarray) -> None:
        for _ in range(times):
            fill(rng, out)

    return random_all


def per_second(function: Callable[..., Any], operations: int, *arrays: Any) -> float:
    """Return the highest rate in processor time of calls of about 20 ms; a call does the operations `times` times."""
    best, times = math.inf, 1
    while best * times < 0.02 or best == math.inf:
        function(times, *arrays)
        began = process_time()
        function(times, *arrays)
        best = (process_time() - began) / times
        times *= 2
    for _ in range(20):
        began = process_time()
        function(times, *arrays)
        best = min(best, (process_time() - began) / times)
    return operations / best


def rates() -> dict[str, float]:
    """Measure operations, and bytes, per second of one core."""
    rng = np.random.default_rng(0)
    out, wide = rng.random(1024) + 0.5, rng.random(65536) + 0.5
    a = rng.random(2048) + 0.5
    return {
        "multiply-adds": per_second(multiply_add_all, 8 * 1024, a, out),
        "divisions": per_second(divide_all, 1024, a, out),
        "functions": per_second(log_all, 1024, a, out),
        "random": per_second(random_filler(), 1024, stream(0, 0, 0), out),
        "bytes, first level": per_second(sum_all, 8 * 2048, a.copy(), out),
        "bytes, second level": per_second(sum_all, 8 * 65536, wide, out),
        "additions, each of the sum before": per_second(add_chain, 2048, a.copy(), out),
        "divisions, each by the quotient before": per_second(divide_chain, 2048, a, out),
    }


# --- parts of a slot -------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A function of the package that a slot calls, in sizes of S1."""

    name: str
    times: str  # in a slot, as a function of K and M
    run: Any  # compiled, of (times, arrays...)
    arrays: tuple[Any, ...]
    multiply_adds: float = 0.0
    divisions: float = 0.0
    random: float = 0.0


def parts() -> list[Part]:
    """Return parts of the slots of mp-ucb and mp-lucb."""
    K, d = 10, 8
    rng, allowed = np.random.default_rng(0), np.ones(K, bool)
    x, theta, A_inv = rng.random((K, d)), rng.random((K, d)), np.tile(np.eye(d), (K, 1, 1))
    v, scratch, picks, index = rng.random((K, d)), np.zeros(2 * K), np.zeros(K, np.int64), rng.random((64, K))
    fill, top, threshold = fill_uniform.dispatcher, selection.top_m.dispatcher, selection.mth_largest.dispatcher
    gather = selection.gather.dispatcher
    width, learn, predict = ridge.width_squared.dispatcher, ridge.learn.dispatcher, ridge.predict.dispatcher

    @kernel()  # type: ignore[untyped-decorator]
    def draw(times: int, rng: np.ndarray, out: np.ndarray) -> None:
        for _ in range(times):
            fill(rng, out)

    @kernel()  # type: ignore[untyped-decorator]
    def product(times: int, theta: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
        for i in range(times):
            out[i % 10] = predict(theta, i % 10, x, i % 10)

    @kernel()  # type: ignore[untyped-decorator]
    def mth(times: int, index: np.ndarray, allowed: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
        for i in range(times):
            n = gather(index[i % 64], allowed, scratch)
            out[0] += threshold(scratch, n, 5)

    @kernel()  # type: ignore[untyped-decorator]
    def select(times: int, index: np.ndarray, allowed: np.ndarray, scratch: np.ndarray, picks: np.ndarray) -> None:
        for i in range(times):
            top(index[i % 64], allowed, 5, scratch, picks)

    @kernel()  # type: ignore[untyped-decorator]
    def widths(times: int, A_inv: np.ndarray, x: np.ndarray, v: np.ndarray, out: np.ndarray) -> None:
        for i in range(times):
            out[i % 10] = width(A_inv, i % 10, x, i % 10, v, i % 10)

    @kernel()  # type: ignore[untyped-decorator]
    def updates(times: int, A_inv: np.ndarray, theta: np.ndarray, v: np.ndarray, x: np.ndarray) -> None:
        for i in range(times):
            k = i % 10
            for j in range(8):
                v[k, j] = x[k, j] * 1e-3
            learn(A_inv, theta, k, v, k, 0.5, 1e-3)

    out, pairs = np.zeros(K), K * (K - 1) / 2
    return [
        Part("contexts: 80 uniform numbers", "1", draw, (stream(0, 0, 0), np.zeros(K * d)), random=K * d),
        Part("perturbation of a channel, or its prediction", "K; 2 K for mp-lucb", product, (theta, x, out), d),
        Part("M-th largest of K, for the contextual reference", "1", mth, (index, allowed, scratch, out), pairs),
        Part("M channels with the largest index", "1", select, (index, allowed, scratch, picks), pairs),
        Part("x' A⁻¹ x of a channel", "K", widths, (A_inv, x, v, out), d * d + d),
        Part("rank-one update of a channel", "M", updates, (A_inv.copy(), theta.copy(), v, x), d * d + 2 * d, 3),
    ]


def parts_table(rate: dict[str, float]) -> str:
    """Return the time of parts of a slot beside their floors."""
    lines = ["| part | times per slot | measured, ns | floor, ns | share |", "|---|---|---|---|---|"]
    for part in parts():
        time = 1e9 / per_second(part.run, 1, *part.arrays)
        least = 1e9 * (
            part.multiply_adds / rate["multiply-adds"]
            + part.divisions / rate["divisions"]
            + part.random / rate["random"]
        )
        lines.append(f"| {part.name} | {part.times} | {time:.1f} | {least:.2f} | {100 * least / time:.0f}% |")
    return "\n".join(lines)


def floor(work: Work, rate: dict[str, float]) -> tuple[float, float]:
    """Return the seconds per slot of the arithmetic and of the memory, at least."""
    arithmetic = (
        work.multiply_adds / rate["multiply-adds"]
        + work.divisions / rate["divisions"]
        + work.functions / rate["functions"]
        + work.random / rate["random"]
    )
    level = "first" if work.read + work.written <= L1_BYTES else "second"
    return arithmetic, (work.read + work.written) / rate[f"bytes, {level} level"]


# --- assembly --------------------------------------------------------------------------------------------------------

PATTERNS = {
    "fused multiply-adds": re.compile(r"\tvfn?m(add|sub)\w*\s"),
    "on 8 numbers": re.compile(r"\tv(add|sub|mul)\w*pd\s.*%zmm"),
    "on 4 or 2": re.compile(r"\tv(add|sub|mul)\w*pd\s(?!.*%zmm)"),
    "on 1": re.compile(r"\tv(add|sub|mul)\w*sd\s"),
    "divisions and roots": re.compile(r"\tv(div|sqrt)[sp]d\s"),
    "conditional branches": re.compile(r"\tj(?!mp)\w+\s"),
    "calls": re.compile(r"\tcall"),
}


def assembly(names: list[str]) -> str:
    """Return a table of the instructions in the machine code of loops."""
    lines = ["| loop | " + " | ".join(PATTERNS) + " |", "|---" * (len(PATTERNS) + 1) + "|"]
    for name in names:
        kernel = PolicyRun.start(ib.scenario("S1"), policy(name), 100, 0, 0).kernel.run
        text = "\n".join(kernel.inspect_asm().values())
        lines.append(f"| {name} | " + " | ".join(str(len(p.findall(text))) for p in PATTERNS.values()) + " |")
    return "\n".join(lines)


# --- tables ----------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.3g}'):,.0f}"


def work_table(
    works: dict[str, Work], formulas: dict[str, str], rate: dict[str, float], times: dict[str, float]
) -> str:
    """Return the table of the work and of the share of its floor on this core."""
    lines = [
        "| policy | multiply-adds | divisions | functions | comparisons | random numbers | bytes read, written"
        " | carried | multiplications, as a function of K, M, d | floor, µs | measured, µs | share |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, w in works.items():
        least = max(floor(w, rate)) * 1e6
        cells = [number(v) for v in (w.multiply_adds, w.divisions, w.functions, w.comparisons, w.random)]
        cells += [f"{number(w.read)}, {number(w.written)}", number(w.carried), formulas[name]]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {least:.3f} | {times[name]:.3f} | {100 * least / times[name]:.0f}% |"
        )
    return "\n".join(lines)


def gpu_table(works: dict[str, Work], measured: dict[str, float]) -> str:
    """Return the table of the floor on an NVIDIA H200, with measured slots per second where they are known."""
    lines = [
        "| policy | arithmetic, slots per second | memory, slots per second | measured | share |",
        "|---|---|---|---|---|",
    ]
    for name, w in works.items():
        arithmetic, memory = H200_MULTIPLY_ADDS / w.multiply_adds, H200_BYTES / w.carried if w.carried else math.inf
        found = (
            f"{measured[name]:.2g} | {100 * measured[name] / min(arithmetic, memory):.1f}%"
            if name in measured
            else " | "
        )
        lines.append(f"| {name} | {arithmetic:.2g} | {memory:.2g} | {found} |")
    return "\n".join(lines)


def timed(run: PolicyRun, slots: int) -> float:
    """Return the processor time per slot of the next slots."""
    began = process_time()
    run.to(run.at + slots)
    return (process_time() - began) / slots


def dimension_table(rate: dict[str, float]) -> str:
    """Return times of MP-LUCB by dimension: what its multiply-adds take beside what does not depend on them."""
    lines = [
        "| d | multiply-adds | measured, µs | multiply-adds per ns | share of the peak | more than above, per ns |",
        "|---|---|---|---|---|---|",
    ]
    before = (0.0, 0.0)
    for d in (2, 4, 8, 16, 32, 64):
        scenario = sized(10, 5, d)
        work = count(scenario, policy("mp-lucb"), 10, 2.0).multiply_adds
        run = PolicyRun.start(scenario, policy("mp-lucb"), 10**6, 0, 0)
        time = min(timed(run, 20_000) for _ in range(10)) * 1e9
        pace = work / time
        more = (work - before[0]) / (time - before[1])
        lines.append(
            f"| {d} | {work:,.0f} | {time / 1e3:.3f} | {pace:.1f} | {100 * pace * 1e9 / rate['multiply-adds']:.0f}%"
            f" | {'' if d == 2 else f'{more:.1f}'} |"
        )
        before = work, time
    return "\n".join(lines)


def rates_table(rate: dict[str, float]) -> str:
    lines = ["| of one core | per second | each, ns |", "|---|---|---|"]
    return "\n".join(lines + [f"| {name} | {value:.2e} | {1e9 / value:.3f} |" for name, value in rate.items()])


def count_all(names: list[str]) -> dict[str, dict[str, Any]]:
    """Count the work of policies, and of the bare loop, which has a fixed selection."""
    found = {}
    for name, configured in {BARE.name: ConfiguredPolicy(BARE, {}), **{name: policy(name) for name in names}}.items():
        network = "D" in configured.policy.parameters
        work = count(ib.scenario("S1"), configured)
        found[name] = {**work._asdict(), "formula": "" if network else formula(configured)}
        print(name, found[name], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=Path, help="output of `idleband bench --json`")
    parser.add_argument("--gpu", type=Path, help="JSON: slots per second on an NVIDIA H200 by policy")
    parser.add_argument("--policy", nargs="+", help="these policies only")
    parser.add_argument("--counted", action="store_true", help="read the counts of the last run")
    parser.add_argument("--assembly", action="store_true", help="count the instructions of loops instead")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "work_per_slot.md")
    arguments = parser.parse_args()
    if arguments.assembly:
        names = arguments.policy or ["mp-ucb", "mp-lucb", "mp-belief-lucb", "mp-nucb"]
        arguments.out.with_stem(arguments.out.stem + "-assembly").write_text(assembly(names) + "\n")
        return
    restart_on_one_core()
    names = arguments.policy or [name for name, p in POLICIES.items() if p.source is None]
    counts = arguments.out.with_suffix(".json")
    if not arguments.counted:
        counts.write_text(json.dumps(count_all(names), indent=1, ensure_ascii=False) + "\n")
    known = json.loads(counts.read_text())
    formulas = {name: row.pop("formula") for name, row in known.items()}
    works = {name: Work(**row) for name, row in known.items()}
    rate = rates()
    if arguments.bench:
        measured = json.loads(arguments.bench.read_text())["loops"]
    else:
        measured = bench(every_policy(), rounds=3)["loops"]
    times = {row["loop"]: row["microseconds"] for row in measured}
    gpu = json.loads(arguments.gpu.read_text()) if arguments.gpu else {}
    day = datetime.datetime.now(datetime.UTC).date()
    tables = {
        "": work_table(works, formulas, rate, times)
        + f"\n\n`python benchmarks/work_per_slot.py`, {day}, one core of an {processor()}, Python"
        f" {platform.python_version()}, NumPy {np.__version__}.",
        "-rates": rates_table(rate),
        "-parts": parts_table(rate),
        "-dimension": dimension_table(rate),
        "-h200": gpu_table(works, gpu),
    }
    for suffix, text in tables.items():
        arguments.out.with_stem(arguments.out.stem + suffix).write_text(text + "\n")
        print("\n" + text)


if __name__ == "__main__":
    main()
