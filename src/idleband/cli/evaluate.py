"""The command evaluate: policies on the log of another one."""

import argparse
import json
from pathlib import Path

from idleband import validation
from idleband.errors import InputError
from idleband.evaluation.evaluate import MAX_CLIP, MIN_CLIP, MISSING
from idleband.evaluation.evaluate import evaluate as find_evaluation


def evaluate(options: argparse.Namespace) -> None:
    """Estimate what policies would have earned in the slots of a log."""
    if not options.policy and not options.channels:
        raise InputError("--policy: must be given at least once, or --channels")
    found = find_evaluation(
        Path(options.log),
        options.policy or [],
        channels=[[channel.strip() for channel in members.split(",")] for members in options.channels or []],
        missing=validation.choice(options.missing, "--missing", MISSING),
        clip=None if options.clip is None else validation.number(options.clip, "--clip", MIN_CLIP, MAX_CLIP),
        seed=validation.whole(options.seed, "--seed", 0, 2**63 - 1),
    )
    print(json.dumps(found.to_dict(), indent=1, allow_nan=False) if options.json else found)
