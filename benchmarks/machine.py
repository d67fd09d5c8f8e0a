"""The processor in words, and one core of it for a measurement."""

import os
import platform
import sys
from pathlib import Path


def processor() -> str:
    """Return the processor in words."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    known = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = known.get("model name", platform.processor() or platform.machine())
    return f"{name} (family {known['cpu family']}, model {known['model']})" if "cpu family" in known else name


def restart_on_one_core() -> None:
    """Run on one core with one thread per library; most of them read the number when they are imported."""
    wanted = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")}
    wanted["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **wanted})
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
