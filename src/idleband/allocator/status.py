"""The state of an allocator as plain data, for people and monitoring."""

from typing import Any

from idleband.allocator import occupancy
from idleband.allocator.events import Decision
from idleband.allocator.settings import Settings
from idleband.arrays import Flags

# Counts that the core keeps. `occupancy.COUNTS` are the others.
COUNTS = ("decisions", "requested", "assigned", "late", "fallback", "missed_deadlines", "shadowed", "agreed")


def status(
    settings: Settings,
    slot: int,
    policy_failure: str,
    counts: dict[str, int],
    last: Decision | None,
    seen: occupancy.Occupancy,
    vacated: Flags,
) -> dict[str, Any]:
    """Return sizes, counts since the start, the last decision and what is known of each channel."""
    sums = zip(occupancy.COUNTS, seen.counts.tolist(), strict=True)
    return {
        "policy": settings.configured.label,
        "channels": settings.channels,
        "users": settings.users,
        "dimension": settings.dimension,
        "feedback": settings.feedback,
        "collision_limit": settings.collision_limit,
        "slot": slot,
        "policy_failure": policy_failure,
        "counts": {**counts, **{name: int(value) if value.is_integer() else value for name, value in sums}},
        "last": None if last is None else last._asdict(),
        "channel": [_channel(settings, k, seen, bool(vacated[k])) for k in range(settings.channels)],
    }


def _channel(settings: Settings, k: int, seen: occupancy.Occupancy, vacated: bool) -> dict[str, Any]:
    plays, state = int(seen.plays[k].sum()), int(seen.last_observation.state[k])
    return {
        "channel": k,
        "name": settings.channel_names[k] if settings.channel_names else None,
        "belief": float(seen.belief[k]),
        "plays": plays,
        "mean_reward": float(seen.earned[k].sum()) / plays if plays else None,
        "last_observed": None if state < 0 else ("busy", "idle")[state],
        "last_observed_slot": int(seen.last_observation.slot[k]),
        "vacated": vacated,
    }
