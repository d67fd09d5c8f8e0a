"""Compare rewards and plays of every built-in policy, bit by bit, with those of an earlier version.

    python studies/unchanged.py                  # compare with studies/unchanged.json; status 1 on a difference
    python studies/unchanged.py --base COMMIT    # compare with a commit of this repository, run on this machine
    python studies/unchanged.py --write [FILE]   # write the digests of this version, by default studies/unchanged.json

Refactoring must not change results. A change that is meant to alter them writes new digests and explains why in its
commit message. A drawn theta is scaled with products and powers by NumPy whose last bits depend on the processor, so on
another one only `--base` compares like with like. 1c9f628 is the last commit before policies, files and messages were
renamed.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import idleband as ib

DIGESTS = Path(__file__).with_suffix(".json")
HORIZON, REPLICATIONS, SEED = 3_000, 2, 11

SCENARIOS = {
    "S1": ("S1", {}),
    "S2": ("S2", {}),
    "S3": ("S3", {}),
    "S4": ("S4", {}),
    "S4, no perturbation": ("S4", {"perturbation": "none"}),
    "S1, quadratic": ("S1", {"perturbation": "quadratic"}),
    "S2, cosine, per channel": ("S2", {"perturbation": {"kind": "cosine", "per_channel": True}}),
    "S3, all channels sensed": ("S3", {"sensing": "all"}),
    "S4, reward feedback": ("S4", {"feedback": "reward"}),
    "S1, additive reward": ("S1", {"reward": "additive"}),
    "S2, two rows of availability": ("S2", {"availability": [[1] * 10, [0] * 3 + [1] * 7]}),
}


def digest(result: ib.Result) -> str:
    """Return a hash of the cumulative rewards, the regrets, the collisions and the plays per channel."""
    arrays = [result.reward, result.regret("static"), result.regret("genie"), result.curves["collisions"]]
    data = b"".join(np.ascontiguousarray(array, np.float64).tobytes() for array in arrays)
    return hashlib.sha256(data + np.ascontiguousarray(result.plays, np.int64).tobytes()).hexdigest()[:32]


def digests() -> dict[str, str]:
    """Return the digests of all policies in all scenarios."""
    found = {}
    for label, (base, changes) in SCENARIOS.items():
        scenario = ib.scenario(base, **changes)
        for name in ib.POLICIES:
            try:
                result = ib.simulate(scenario, name, horizon=HORIZON, replications=REPLICATIONS, seed=SEED)
                found[f"{label} / {name}"] = digest(result)
            except ib.InputError:
                found[f"{label} / {name}"] = "refused"
        print(f"{label}: {len(ib.POLICIES)} policies", flush=True)
    return found


def digests_of(commit: str) -> dict[str, str]:
    """Return the digests of another commit, whose sources are checked out into a temporary folder."""
    repository = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit, "src"], cwd=repository, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        written = Path(folder) / "digests.json"
        environment = {**os.environ, "PYTHONPATH": str(Path(folder) / "src")}
        subprocess.run([sys.executable, __file__, "--write", str(written)], env=environment, check=True)
        return dict(json.loads(written.read_text()))


def main() -> int:
    match sys.argv[1:]:
        case []:
            expected = json.loads(DIGESTS.read_text())
        case ["--base", commit]:
            expected = digests_of(commit)
        case ["--write", *to]:
            Path(*to or [DIGESTS]).write_text(json.dumps(digests(), indent=0) + "\n")
            return 0
        case _:
            sys.exit("unchanged.py: takes nothing, --base COMMIT or --write [FILE]")
    found = digests()
    different = [key for key, value in expected.items() if found.get(key) != value]
    for key in different:
        print(f"different: {key}")
    print(f"{len(expected) - len(different)} of {len(expected)} digests equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
