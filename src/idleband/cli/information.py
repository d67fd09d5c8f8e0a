"""Commands that describe: scenarios, policies, show, cost, optimum and bench."""

import argparse
import json

from idleband import validation


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
    from idleband.reporting.text import table
    from idleband.simulation import bench as measurement

    data = measurement.bench()
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
