"""Commands that describe: scenarios, policies, show, cost, optimum and bench."""

import argparse
import json
from typing import TYPE_CHECKING

from idleband import validation
from idleband.errors import InputError

if TYPE_CHECKING:
    from idleband.policies.registry import ConfiguredPolicy


def scenarios(options: argparse.Namespace) -> None:
    """List the presets."""
    from idleband.scenario.presets import PRESETS

    if options.json:
        print(json.dumps({name: preset._asdict() for name, preset in PRESETS.items()}, indent=1))
        return
    for name, preset in PRESETS.items():
        print(f"{name}  {preset.note}")
    print("\n`idleband show S1` describes one. A scenario of your own is a TOML file: see")
    print("docs/how-to/write-a-scenario-file.md.")


def policies(options: argparse.Namespace) -> None:
    """List the policies, or describe one."""
    from idleband.policies.registry import all_policies, policy
    from idleband.reporting.policies import policies_text, policy_json, policy_text

    if options.name is None:
        listing = {name: policy_json(listed) for name, listed in all_policies().items()}
        print(json.dumps(listing, indent=1) if options.json else policies_text())
        return
    found = policy(options.name).policy
    print(json.dumps({found.name: policy_json(found)}, indent=1) if options.json else policy_text(found))


def show(options: argparse.Namespace) -> None:
    """Describe a scenario."""
    from idleband.cli.arguments import read_scenario
    from idleband.reporting.card import card, card_text

    seed = validation.whole(options.seed, "--seed", 0, 2**63 - 1)
    data = card(read_scenario(options.what, options.perturbation, options.users), seed)
    print(json.dumps(data, indent=1) if options.json else card_text(data))


def cost(options: argparse.Namespace) -> None:
    """Print the regret per slot of a fixed set of channels."""
    from idleband.cli.arguments import read_scenario

    scenario = read_scenario(options.what, users=options.users)
    channels = [channel.strip() for channel in options.channels.split(",")]
    regret = scenario.cost(channels)
    if options.json:
        print(json.dumps({"scenario": scenario.name, "channels": channels, "cost": regret}))
    else:
        print(f"{regret:.3f}")


def optimum(options: argparse.Namespace) -> None:
    """Print the optimal reward per slot, and how far the upper bound is above it."""
    from idleband.cli.arguments import read_scenario
    from idleband.scenario import optimum as exact
    from idleband.scenario.upper_bound import bound

    seed = validation.whole(options.seed, "--seed", 0, 2**63 - 1)
    tolerance = validation.decimal(options.tolerance, "--tolerance")
    scenario = read_scenario(options.what, options.perturbation, options.users)
    found = exact.optimum(scenario, seed=seed, tolerance=tolerance)
    limit = bound(scenario, found.theta)
    if options.json:
        numbers = {key: getattr(found, key) for key in ("value", "lower", "upper", "states", "sweeps", "span")}
        more = {"sampling_error": found.sampling_error, "bound": limit}
        print(json.dumps({"scenario": scenario.name, **numbers, **more}, indent=1))
        return
    print(f"{scenario.name}: optimal reward {found}")
    if limit is not None:
        above = f", {limit / found.value - 1.0:.1%} above" if found.value > 0.0 else ""
        print(f"upper bound for policies that observe played channels only: {limit:.4f}{above}")


def bench(options: argparse.Namespace) -> None:
    """Measure every policy and print microseconds per slot."""
    from idleband.experiments.spec import every_policy
    from idleband.policies.registry import policy
    from idleband.reporting.text import table
    from idleband.scenario.build import scenario as build_scenario
    from idleband.simulation import bench as measurement
    from idleband.simulation.devices import read_device
    from idleband.simulation.users_run import check_coordination

    device = read_device(options.device, options.precision, "--")
    policies = [policy(text) for text in options.policy or ()]
    for i, configured in enumerate(policies):
        if configured.label in (one.label for one in policies[:i]):
            raise InputError(f"policy {configured.label}: given twice")
        check_coordination(build_scenario("S1"), configured.policy)
    if device.name == "cuda":
        _bench_on_gpu(options, policies or every_policy(), device.precision == "float32")
        return
    for name in ("horizon", "replications"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name}: only used with --device cuda")
    data = measurement.bench(policies or every_policy())
    if options.json:
        print(json.dumps(data, indent=1))
        return
    size = data["scenario"]
    print(f"one core, {size['name']}: K = {size['K']}, M = {size['M']}, d = {size['d']}; best of {data['rounds']} runs")
    rows = [("policy", "µs/slot", "x bare loop", "slots/s")]
    for row in data["loops"]:
        ratio, rate = f"{row['ratio_to_bare']:.2f}", f"{row['slots_per_second']:,.0f}"
        rows.append((row["loop"], f"{row['microseconds']:.3f}", ratio, rate))
    print(table(rows))


def _bench_on_gpu(options: argparse.Namespace, policies: "list[ConfiguredPolicy]", narrow: bool) -> None:
    from idleband.cli.progress import ProgressBar
    from idleband.reporting.text import table
    from idleband.simulation.gpu.bench import bench_on_gpu
    from idleband.simulation.gpu.replications import PARTS
    from idleband.simulation.simulate import MAX_REPLICATIONS, MAX_SLOTS

    size = {}
    for name, argument, most in (("slots", "horizon", MAX_SLOTS), ("replications", "replications", MAX_REPLICATIONS)):
        given = getattr(options, argument)
        if given is not None:
            size[name] = validation.whole(given, f"--{argument}", 1, most)
    with ProgressBar(announce=not options.json) as bar:
        data = bench_on_gpu(policies, narrow=narrow, compiling=bar.compiling, **size)
    if options.json:
        print(json.dumps(data, indent=1))
        return
    scenario = data["scenario"]
    print(
        f"{data['device']}, {data['precision']}, {scenario['name']}: K = {scenario['K']}, M = {scenario['M']},"
        f" d = {scenario['d']}; {data['replications']:,} replications x {data['slots']:,} slots, best of"
        f" {data['rounds']} runs"
    )
    rows = [("policy", "slots/s", "seconds", "set-up", "loop", "results", "compiling")]
    for row in data["policies"]:
        if "reason" in row:
            rows.append((row["policy"], "-", *[""] * 5))
            continue
        parts = [f"{row[part]:.3f}" for part in ("seconds", *PARTS, "compile_seconds")]
        rows.append((row["policy"], f"{row['slots_per_second']:.3g}", *parts))
    print(table(rows))
    for row in data["policies"]:
        if "reason" in row:
            print(f"{row['policy']}: {row['reason']}")
