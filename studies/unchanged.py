"""Compare rewards and plays of every built-in policy, bit by bit, with digests made by an earlier version.

    python studies/unchanged.py            # compare this version with studies/unchanged.json; status 1 on a difference
    python studies/unchanged.py --write    # write studies/unchanged.json

The digests in the repository were written by commit 1c9f628, the last one before policies, files and messages were
renamed. Refactoring must not change them. A change that is meant to alter results writes new digests and
explains why in its commit message.
"""

import hashlib
import json
import sys
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


def main() -> int:
    found = digests()
    if sys.argv[1:] == ["--write"]:
        DIGESTS.write_text(json.dumps(found, indent=0) + "\n")
        return 0
    expected = json.loads(DIGESTS.read_text())
    different = [key for key, value in expected.items() if found.get(key) != value]
    for key in different:
        print(f"different: {key}")
    print(f"{len(expected) - len(different)} of {len(expected)} digests equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
