"""Measure the speed of policies on a GPU, from the set-up of replications to their results in host memory."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from idleband.errors import InputError
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.build import scenario as build_scenario
from idleband.simulation.devices import Device, check_device
from idleband.simulation.gpu.device import check_usable, device_name
from idleband.simulation.gpu.replications import PARTS, Simulation

REPLICATIONS, SLOTS, ROUNDS = 65_536, 2_000, 3


def bench_on_gpu(
    policies: list[ConfiguredPolicy],
    *,
    replications: int = REPLICATIONS,
    slots: int = SLOTS,
    narrow: bool = False,
    compiling: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Measure policies on S1; the fastest of ROUNDS runs counts.

    A run contains everything but compilation: random streams and thetas, all slots, and copying the curves and plays of
    all replications. A policy that cannot run has a reason instead of times.
    """
    check_usable()
    S1 = build_scenario("S1")
    check_device(Device("cuda", "float32" if narrow else "float64"), S1, slots)
    rows: list[dict[str, Any]] = []
    for configured in policies:
        compiling(configured.label)
        began = perf_counter()
        try:
            simulation = Simulation(S1, configured, slots, 0, narrow=narrow)
            simulation.prepare(replications)
        except InputError as error:
            rows.append({"policy": configured.label, "reason": str(error)})
            continue
        compiled = perf_counter() - began
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            simulation.seconds = dict.fromkeys(PARTS, 0.0)
            began = perf_counter()
            for _ in simulation.run(range(replications), lambda slots: None):
                pass
            seconds = perf_counter() - began
            if not best or seconds < best["seconds"]:
                best = {"seconds": seconds, **simulation.seconds}
        rate = replications * slots / best["seconds"]
        rows.append({"policy": configured.label, "slots_per_second": rate, "compile_seconds": compiled, **best})
    return {
        "device": device_name(),
        "precision": "float32" if narrow else "float64",
        "scenario": {"name": "S1", "K": S1.K, "M": S1.users, "d": S1.dimension},
        "replications": replications,
        "slots": slots,
        "rounds": ROUNDS,
        "policies": rows,
    }
