"""The command serve: an allocator over HTTP."""

import argparse
from collections.abc import Callable
from typing import Any

from idleband import validation
from idleband.allocator.settings import Settings
from idleband.errors import InputError
from idleband.policies.registry import policy


def serve(options: argparse.Namespace) -> None:
    """Start the HTTP service and run until it is stopped."""
    try:
        from idleband.service.limits import Limits, proxy
        from idleband.service.postgres_url import journal_place
        from idleband.service.serve import ServeOptions
        from idleband.service.serve import serve as run_service
        from idleband.service.tokens import read_tokens
    except ImportError as error:
        raise InputError(f"serve: needs {error.name}; pip install 'idleband[serve]'") from None
    where = ServeOptions(
        data=journal_place(options.data),
        host=options.host,
        port=validation.whole(options.port, "--port", 0, 65535),
        tokens=read_tokens(options.token_file),
        limits=Limits(
            validation.whole(options.body, "--body", 1000, 2**31),
            validation.whole(options.rate, "--rate", 1, 10**9),
            validation.whole(options.connections, "--connections", 1, 10**5),
            validation.whole(options.per_address, "--per-address", 1, 10**5),
            tuple(proxy(address) for address in options.proxy),
            validation.whole(options.memory, "--memory", 1, 10**6) * 2**20,
        ),
        station=options.station,
        traces=tuple(options.trace),
        telemetry=options.telemetry,
        advertise=options.advertise,
        lease=None
        if options.lease is None
        else validation.number(validation.decimal(options.lease, "--lease"), "--lease", 1.0, 60.0),
        pace=validation.whole(options.pace, "--pace", 1, 10**6),
    )
    run_service(where, options.name, _allocator_settings(options))


def _lease(text: str) -> float:
    return validation.number(validation.decimal(text, "--lease"), "--lease", 1.0, 60.0)


def _allocator_settings(options: argparse.Namespace) -> Settings | None:
    """Return the settings of the allocator to create, or None if no policy is given."""
    given: dict[str, Any] = {}
    for setting in options.set:
        key, equals, value = setting.partition("=")
        if not equals or key not in SETTINGS:
            raise InputError(f"--set {setting}: must be KEY=VALUE, KEY one of {', '.join(SETTINGS)}")
        if key in SENSING_ERRORS:
            given.setdefault("sensing_errors", {})[key] = SETTINGS[key](value)
        else:
            given[key] = SETTINGS[key](value)
    if options.policy is None:
        for key in ("channels", "users", "dimension"):
            if getattr(options, key) is not None:
                raise InputError(f"--{key}: must come with --policy")
        if given:
            raise InputError(f"--set {options.set[0]}: must come with --policy")
        return None
    configured = policy(options.policy)
    file, colon, _ = options.policy.partition(".py:")
    name = f"{file}.py:{configured.policy.name}" if colon else configured.policy.name
    size = {key: getattr(options, key) for key in ("channels", "users", "dimension")}
    for key in ("channels", "users"):
        if size[key] is None:
            raise InputError(f"--{key}: must be given with --policy")
    return Settings.checked({"policy": name, "parameters": configured.values, **size, **given})


def _float_or_text(value: str) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


def _number_or_numbers(value: str) -> Any:
    """Return one number, or a list where there are commas."""
    return [_float_or_text(part) for part in value.split(",")] if "," in value else _float_or_text(value)


SENSING_ERRORS = ("missed", "false_alarm")  # keys of the setting sensing_errors

# Keys that --set accepts, with the conversion of their values.
SETTINGS: dict[str, Callable[[str], Any]] = {
    "feedback": str,
    "fallback": str,
    "incumbent": str,
    "patience": str,
    "seed": str,
    "deadline": _float_or_text,
    "collision_limit": _float_or_text,
    "missed": _number_or_numbers,
    "false_alarm": _number_or_numbers,
    "switching_cost": _float_or_text,
    "channel_names": lambda text: text.split(","),
    "rewards": lambda text: [_float_or_text(part) for part in text.split(",")],
}
