"""The list of policies, and one policy with its parameters, as text and as JSON."""

import textwrap
from typing import Any

from idleband.policies.protocol import KNOWLEDGE, PARAMETERS, Policy
from idleband.policies.registry import all_policies
from idleband.reporting.text import WIDTH, definitions, paragraph

# Policies that the paper proposes or compares with.
PAPER = (
    "mp-random", "mp-ucb", "mp-klucb", "rca-m", "mp-lucb", "mp-lucb-rca", "mp-lucb-printed", "mp-nucb", "mp-nucb-rca",
    "mp-nucb-printed",
)  # fmt: skip
PACKAGE = ("mp-belief", "mp-belief-lucb", "mp-belief-nucb", "mp-adaptive", "mp-adaptive-lucb")
RULES = ("mp-stay", "mp-lbt")


def policies_text() -> str:
    """Return one line per policy, grouped by origin."""
    every = all_policies()
    groups: dict[str, list[Policy]] = {}
    for policy in every.values():
        groups.setdefault(_group(policy), []).append(policy)
    lines = []
    for title, members in groups.items():
        lines.append(title)
        size = max(len(policy.name) for policy in members) + 4
        for policy in members:
            description = textwrap.shorten(policy.description, WIDTH - size, placeholder=" ...")
            lines.append(f"  {policy.name:{size - 2}}{description}")
        lines.append("")
    return "\n".join([*lines, "`idleband policies NAME` describes a policy and its parameters."])


def _group(policy: Policy) -> str:
    if policy.source is not None:
        return "Registered by you"
    if policy.decentralised:
        return "For single users without a base station"
    if policy.name in PAPER:
        return "The paper and its baselines"
    if policy.name in PACKAGE:
        return "New in this package"
    if policy.name in RULES:
        return "Rules without a model"
    if PARAMETERS in policy.knows:
        return "Oracles: know the parameters of the scenario"
    return "Other published policies"


def policy_text(policy: Policy) -> str:
    """Return a description of one policy with its parameters, their defaults, ranges and meaning."""
    knows = [word for word in KNOWLEDGE if word in policy.knows]
    reference = [("reference:", policy.reference)] if policy.source is None else []
    facts = [
        *reference,
        ("knows:", ", ".join(["states and rewards of played channels", *knows])),
    ]
    lines = [policy.name, paragraph(policy.description), "", definitions(facts)]
    if policy.parameters:
        lines += ["", "parameters:"]
    for parameter in policy.parameters.values():
        default = str(parameter.default).lower() if isinstance(parameter.default, bool) else parameter.default
        fixed = "; fixed in this policy" if parameter.name in policy.fixed else ""
        meaning = f"{parameter.meaning} ({parameter.allowed}){fixed}"
        indent = " " * 6
        wrapped = textwrap.fill(meaning, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        lines += [f"  {parameter.name} = {default}", wrapped]
    free = [parameter for name, parameter in policy.parameters.items() if name not in policy.fixed]
    if free and policy.source is None:
        lines += ["", f"example: --policy {policy.name}:{free[0].name}={str(free[0].default).lower()}"]
    return "\n".join(lines)


def policy_json(policy: Policy) -> dict[str, Any]:
    """Return the description of one policy as plain data."""
    return {
        "description": policy.description,
        "reference": policy.reference,
        "decentralised": policy.decentralised,
        "knows": [word for word in KNOWLEDGE if word in policy.knows],
        "parameters": {
            parameter.name: {
                "default": parameter.default,
                "allowed": parameter.allowed,
                "meaning": parameter.meaning,
            }
            for parameter in policy.parameters.values()
        },
    }
