"""Measure what a replication takes besides its slots: theta, the sample path, the state of the policy, storing.

    python benchmarks/setup.py [REPLICATIONS]    # 10,000 by default, of 1,000 slots of mp-ucb

Times are processor times of one thread, so that other work on the machine matters little. Shares are those of one run.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time, thread_time
from typing import Any

import numpy as np

import idleband as ib
from idleband.policies.registry import policy
from idleband.scenario.perturbation import PERTURBATION_MODELS, prepare_drawing
from idleband.simulation import scheduler, simulate
from idleband.simulation.path import TOGETHER, draw_ahead, path_parameters
from idleband.simulation.run import PolicyRun, ReferenceRun

HORIZON = 1000


def microseconds(function: Callable[[int], Any], count: int) -> tuple[float, float]:
    """Return the median and the mean time of a call with 0, 1, 2, ..."""
    times = []
    for i in range(count):
        began = thread_time()
        function(i)
        times.append(thread_time() - began)
    return float(np.median(times)) * 1e6, float(np.mean(times)) * 1e6


def models(count: int = 2048) -> None:
    """Print the time of theta and the means, of the references and of mp-ucb for each perturbation model."""
    ucb = policy("mp-ucb")
    for name, model in PERTURBATION_MODELS.items():
        if model.source is not None:
            continue
        scenario = ib.scenario("S1", perturbation=name)
        draw_ahead(scenario, 1, 0, TOGETHER)  # the sample of contexts, where one is counted, is made once
        PolicyRun.start(scenario, ucb, HORIZON, 1, 0)
        blocks = count // TOGETHER
        drawn = np.array(microseconds(lambda i, s=scenario: drawing(s, i * TOGETHER, count), blocks)) / TOGETHER
        references = microseconds(lambda i, s=scenario: ReferenceRun.start(s, HORIZON, 0, i), count // 2)
        played = microseconds(lambda i, s=scenario: PolicyRun.start(s, ucb, HORIZON, 0, i), count // 2)
        total = np.array([drawn, references, played]).sum(axis=0)
        print(
            f"{name:10s} theta and means {drawn[0]:5.1f}, references {references[0]:4.1f}, mp-ucb {played[0]:4.1f} us;"
            f" together {total[0] / 1e3:.3f} ms (mean {total[1] / 1e3:.3f})"
        )


def drawing(scenario: ib.Scenario, first: int, count: int) -> None:
    """Find theta and the means of some replications."""
    draw_ahead(scenario, 0, first, count)
    path_parameters(scenario, 0, first)


def policies(count: int = 200) -> None:
    """Print the time of a policy and its sample path, without theta, for each policy."""
    scenario = ib.scenario("S1")
    for name in ib.POLICIES:
        configured = policy(name)
        PolicyRun.start(scenario, configured, HORIZON, 0, 0)
        for i in range(count):
            path_parameters(scenario, 0, i)
        median, mean = microseconds(lambda i, c=configured: PolicyRun.start(scenario, c, HORIZON, 0, i), count)
        print(f"{name:18s} {median / 1e3:.3f} ms (mean {mean / 1e3:.3f})")


@contextmanager
def timed(owner: Any, name: str, times: dict[str, float], part: str) -> Iterator[None]:
    """Add the time of all calls of a function to a part, without that of calls within them."""
    original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    function = getattr(original, "__func__", original)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        began, before = thread_time(), sum(times.values())
        try:
            return function(*arguments, **named)
        finally:
            inner = sum(times.values()) - before
            times[part] = times.get(part, 0.0) + thread_time() - began - inner

    setattr(owner, name, classmethod(wrapped) if isinstance(original, classmethod) else wrapped)
    try:
        yield
    finally:
        setattr(owner, name, original)


def shares(replications: int) -> None:
    """Print the parts of a run of mp-ucb in S1, and what it takes to store it."""
    ib.simulate("S1", "mp-ucb", horizon=HORIZON, replications=2 * TOGETHER, threads=1)  # everything is compiled
    times: dict[str, float] = {}
    with (
        timed(scheduler, "draw_ahead", times, "set-up: theta and means"),
        timed(ReferenceRun, "start", times, "set-up: references"),
        timed(PolicyRun, "start", times, "set-up: policy"),
        timed(ReferenceRun, "to", times, "slots: references"),
        timed(PolicyRun, "to", times, "slots: policy"),
        timed(simulate, "result_of", times, "result"),
    ):
        began = process_time()
        ib.simulate("S1", "mp-ucb", horizon=HORIZON, replications=replications, threads=1)
        total = process_time() - began
    times["scheduling and the rest"] = total - sum(times.values())
    print(f"{replications:,} replications of {HORIZON:,} slots: {total:.1f} s")
    for part, seconds in times.items():
        print(f"  {part:24s} {seconds / replications * 1e3:.3f} ms per replication, {seconds / total:.1%}")
    setting_up = sum(seconds for part, seconds in times.items() if part.startswith("set-up"))
    slots = sum(seconds for part, seconds in times.items() if part.startswith("slots"))
    print(f"set-up {setting_up / total:.1%} of the time, everything but slots {1 - slots / total:.1%}")
    seconds = {}
    for stored in (False, True):
        with tempfile.TemporaryDirectory() as place:
            began = process_time()
            out = Path(place) / "out" if stored else None
            ib.compare("S1", ["mp-ucb"], horizon=HORIZON, replications=replications, threads=1, out=out)
            seconds[stored] = process_time() - began
    print(f"stored: {(seconds[True] - seconds[False]) / replications * 1e3:.3f} ms per replication more")


if __name__ == "__main__":
    prepare_drawing()
    models()
    policies()
    shares(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
