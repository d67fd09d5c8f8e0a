"""Generate src/idleband/policies/constructors.py from the table of policies.

python tools/generate_constructors.py            write the file
python tools/generate_constructors.py --check    fail if the file is not up to date
"""

import sys
import textwrap
from pathlib import Path

from idleband.policies.parameters import OneOf, Parameter
from idleband.policies.protocol import CONTEXTS_SEEN, KNOWLEDGE, PARAMETERS, STATES_SEEN, Policy
from idleband.policies.registry import all_policies

FILE = Path(__file__).parent.parent / "src" / "idleband" / "policies" / "constructors.py"
WIDTH = 120

CITATIONS = {
    "Li, Li, Lu, Liu and Jin 2026": "Li, Li, Lu, Liu and Jin, \"A context augmented multi-play multi-armed bandit"
    " algorithm for fast channel allocation in opportunistic spectrum access\", 2026.",
    "Garivier and Moulines, ALT 2011": "Garivier and Moulines, \"On upper-confidence bound policies for switching"
    " bandit problems\", ALT 2011.",
    "Liu and Zhao, IEEE-IT 2010": "Liu and Zhao, \"Indexability of restless bandit problems and optimality of Whittle"
    " index for dynamic multichannel access\", IEEE Transactions on Information Theory 56(11), 2010.",
    "Chen, Wang and Yuan, ICML 2013": "Chen, Wang and Yuan, \"Combinatorial multi-armed bandit: general framework,"
    " results and applications\", ICML 2013.",
    "Garivier and Cappe, COLT 2011": "Garivier and Cappe, \"The KL-UCB algorithm for bounded stochastic bandits and"
    " beyond\", COLT 2011.",
    "Komiyama, Honda, Nakagawa, ICML 2015": "Komiyama, Honda and Nakagawa, \"Optimal regret analysis of Thompson"
    " sampling in stochastic multi-armed bandit problem with multiple plays\", ICML 2015.",
    "Tekin and Liu, IEEE-IT 2012": "Tekin and Liu, \"Online learning of rested and restless bandits\", IEEE"
    " Transactions on Information Theory 58(8), 2012.",
    "Akbarzadeh and Mahajan, IEEE-TCNS 2024": "Akbarzadeh and Mahajan, \"On learning Whittle index policy for restless"
    " bandits with scalable regret\", IEEE Transactions on Control of Network Systems, 2024.",
    "Jung, Abeille and Tewari 2019": "Jung, Abeille and Tewari, \"Thompson sampling in non-episodic restless"
    " bandits\", 2019.",
    "Qin, Chen and Zhu, SDM 2014": "Qin, Chen and Zhu, \"Contextual combinatorial bandit and its application on"
    " diversified online recommendation\", SDM 2014.",
    "Zhou, Li and Gu, ICML 2020": "Zhou, Li and Gu, \"Neural contextual bandits with UCB-based exploration\","
    " ICML 2020.",
    "Zhang, Zhou, Li and Gu, ICLR 2021": "Zhang, Zhou, Li and Gu, \"Neural Thompson sampling\", ICLR 2021.",
    "Li, Chu, Langford and Schapire, WWW 2010": "Li, Chu, Langford and Schapire, \"A contextual-bandit approach to"
    " personalized news article recommendation\", WWW 2010.",
    "Besson, Kaufmann, Maillard and Seznec, JMLR 2022": "Besson, Kaufmann, Maillard and Seznec, \"Efficient"
    " change-point detection for tackling piecewise-stationary bandits\", Journal of Machine Learning Research 23,"
    " 2022.",
    "Uchiya, Nakamura and Kudo, ALT 2010": "Uchiya, Nakamura and Kudo, \"Algorithms for adversarial bandit problems"
    " with multiple plays\", ALT 2010.",
    "Liu, Liu and Zhao, IEEE-IT 2013": "Liu, Liu and Zhao, \"Learning in a changing world: restless multiarmed bandit"
    " with unknown dynamics\", IEEE Transactions on Information Theory 59(3), 2013.",
    "Wang, Huang and Lui, NeurIPS 2020": "Wang, Huang and Lui, \"Restless-UCB, an efficient and low-complexity"
    " algorithm for online restless bandits\", NeurIPS 2020.",
    "Avrachenkov and Borkar, Automatica 2022": "Avrachenkov and Borkar, \"Whittle index based Q-learning for restless"
    " bandits with average reward\", Automatica 139, 2022.",
    "Ahmad and Liu, Allerton 2009": "Ahmad and Liu, \"Multi-channel opportunistic access: a case of restless bandits"
    " with multiple plays\", Allerton Conference on Communication, Control, and Computing, 2009.",
    "Besson and Kaufmann, ALT 2018": "Besson and Kaufmann, \"Multi-player bandits revisited\", ALT 2018.",
    "Anandkumar, Michael, Tang and Swami, IEEE-JSAC 2011": "Anandkumar, Michael, Tang and Swami, \"Distributed"
    " algorithms for learning and cognitive medium access with logarithmic regret\", IEEE Journal on Selected Areas in"
    " Communications 29(4), 2011.",
    "Rosenski, Shamir and Szlak, ICML 2016": "Rosenski, Shamir and Szlak, \"Multi-player bandits: a musical chairs"
    " approach\", ICML 2016.",
    "Boursier and Perchet, NeurIPS 2019": "Boursier and Perchet, \"SIC-MMAB: synchronisation involves communication in"
    " multiplayer multi-armed bandits\", NeurIPS 2019.",
    "Wang, Proutiere, Ariu, Jedra and Russo, AISTATS 2020": "Wang, Proutiere, Ariu, Jedra and Russo, \"Optimal"
    " algorithms for multiplayer multi-armed bandits\", AISTATS 2020.",
    "Bistritz and Leshem, NeurIPS 2018": "Bistritz and Leshem, \"Distributed multi-player bandits: a game of thrones"
    " approach\", NeurIPS 2018.",
    "IEEE 802.11": "IEEE Standard 802.11, distributed coordination function.",
    "this package": "",
}  # fmt: skip

HEADER = '''"""Typed constructors of the built-in policies: `idleband.policies.MPLUCB(beta=0.5)`.

Generated by tools/generate_constructors.py from the table of policies; do not edit.
"""

from typing import Literal

from idleband.policies.registry import ConfiguredPolicy, policy

'''


ABBREVIATIONS = ("mp", "ucb", "klucb", "ts", "rca", "m", "lucb", "nucb", "swucb", "ducb", "c2ucb", "lbt", "glr", "dsee")
SPELLED = {
    "linucb": "LinUCB",
    "randtopm": "RandTopM",
    "mctopm": "MCTopM",
    "sic": "SIC",
    "mmab": "MMAB",
    "dpe1": "DPE1",
}


def constructor_name(policy: str) -> str:
    """Return the name of the constructor of a policy: MPLUCBPrinted for mp-lucb-printed."""
    return "".join(
        part.upper() if part in ABBREVIATIONS else SPELLED.get(part, part.capitalize()) for part in policy.split("-")
    )


def type_of(parameter: Parameter) -> str:
    if isinstance(parameter.bound, OneOf):
        return f"Literal[{', '.join(quoted(word) for word in parameter.bound.words)}]"
    return parameter.kind.__name__


def quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def argument(parameter: Parameter) -> str:
    return "lambda_" if parameter.name == "lambda" else parameter.name


def knowledge(policy: Policy) -> str:
    if policy.decentralised:
        known = [word for word in KNOWLEDGE if word in policy.knows]
        return f"For a single user without a base station. Needs: {', '.join(known) or 'own rewards'}."
    if STATES_SEEN in policy.knows:
        return "Knows the true parameters of the scenario and all states and perturbations of the slot."
    texts = {
        frozenset[str](): "Observes the states and rewards of played channels. Does not use contexts.",
        frozenset([CONTEXTS_SEEN]): "Observes contexts, and the feedback of played channels.",
        frozenset([PARAMETERS]): "Knows the true parameters of the scenario. Does not use contexts.",
        frozenset([CONTEXTS_SEEN, PARAMETERS]): "Knows the true parameters of the scenario, and observes contexts.",
    }
    return texts[policy.knows]


def wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)


def example(policy: Policy, settable: list[Parameter]) -> list[str]:
    name, changed = constructor_name(policy.name), ""
    label = policy.name
    for parameter in settable[:1]:
        value: object
        if isinstance(parameter.bound, OneOf):
            value = next(word for word in parameter.bound.words if word != parameter.default)
        elif parameter.kind is bool:
            value = not parameter.default
        else:
            value = parameter.default / 2 if parameter.kind is float else parameter.default * 2
        shown = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value:g}"
        changed, label = f"{argument(parameter)}={quoted(value)}", f"{label} {parameter.name}={shown}"
    return [
        *("    Examples", "    --------", "    >>> import idleband as ib"),
        *(f"    >>> ib.policies.{name}({changed})", f"    ConfiguredPolicy({label})"),
    ]


def constructor(policy: Policy) -> str:
    name = constructor_name(policy.name)
    settable = [parameter for parameter in policy.parameters.values() if parameter.name not in policy.fixed]
    lines = []
    if settable:
        lines += [f"def {name}(", "    *,"]
        lines += [f"    {argument(p)}: {type_of(p)} = {quoted(p.default)}," for p in settable]
        lines += [") -> ConfiguredPolicy:"]
    else:
        lines += [f"def {name}() -> ConfiguredPolicy:"]
    summary = policy.description[0].upper() + policy.description[1:]
    lines += [f'    """{summary}.', "", *wrapped(f"Policy `{policy.name}`. {knowledge(policy)}", 4), ""]
    if settable:
        lines += ["    Parameters", "    ----------"]
        for p in settable:
            lines += [f"    {argument(p)} : {type_of(p).replace('Literal[', '{').replace(']', '}')}"]
            meaning = p.meaning[0].upper() + p.meaning[1:]
            allowed = "" if isinstance(p.bound, OneOf) or p.kind is bool else f" Must be {p.allowed}."
            lines += wrapped(f"{meaning}.{allowed} Default: {quoted(p.default)}.", 8)
        lines += [""]
    lines += ["    Returns", "    -------", "    ConfiguredPolicy", ""]
    if citation := CITATIONS[policy.reference]:
        lines += ["    References", "    ----------", *wrapped(citation, 4), ""]
    lines += [*example(policy, settable), '    """']
    if settable:
        lines += ["    return policy(", f'        "{policy.name}",']
        lines += [f"        {argument(p)}={argument(p)}," for p in settable]
        lines += ["    )"]
    else:
        lines += [f'    return policy("{policy.name}")']
    return "\n".join(lines)


def generate() -> str:
    """Return the text of constructors.py."""
    built_in = [policy for policy in all_policies().values() if policy.source is None]
    names = sorted((constructor_name(policy.name) for policy in built_in), key=lambda name: (not name.isupper(), name))
    exported = "".join(f'    "{name}",\n' for name in names)
    body = "\n\n\n".join(constructor(policy) for policy in built_in)
    return f"{HEADER}__all__ = [\n{exported}]\n\n\n{body}\n"


def main() -> None:
    text = generate()
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.name} is not up to date: run python tools/generate_constructors.py")


if __name__ == "__main__":
    main()
