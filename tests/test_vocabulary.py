"""The glossary defines every term once, and the terms that it retires are not used outside its table."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Words of the table "Retired terms" that have no other meaning here.
RETIRED = re.compile(
    r"\b(laws?|chances?|told|lessons?|desks?|offices?|clearness|worth|nobody|anybody|Gilbert-Elliot|(MOST|LONGEST|SLOWEST|ENOUGH)_[A-Z_]+)\b"
    r"|[0-9] (us|µs|microseconds?|points?) a slot|(reward|earns?|earned|[0-9]) a slot",
    re.IGNORECASE,
)
PLACES = ("src", "docs", "tests", "examples", "README.md", "CONTRIBUTING.md")
EXEMPT = {
    "docs/glossary.md",
    "tests/test_vocabulary.py",
    "tests/data/version-0.1/results/policies/epsilon_greedy@b6d8e1fda5f8.py",
}


def text_files() -> list[Path]:
    found = [
        path for name in PLACES for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])
    ]
    wanted = (".py", ".md", ".html", ".js", ".css", ".toml")
    return [path for path in found if path.suffix in wanted and str(path.relative_to(ROOT)) not in EXEMPT]


def test_retired_terms_are_not_used() -> None:
    found = []
    for path in text_files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := RETIRED.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ["a quadratic law", "0.155 a slot", "MOST_SLOTS", "the chance of a collision", "what a channel is worth"]
)
def test_retired_terms_are_recognised(text: str) -> None:
    assert RETIRED.search(text)


@pytest.mark.parametrize("text", ["Gilbert-Elliott", "once in a slot", "almost_all", "a lawful assumption"])
def test_other_words_are_accepted(text: str) -> None:
    assert not RETIRED.search(text)


# --- the glossary ----------------------------------------------------------------------------------------------------

GLOSSARY = (ROOT / "docs/glossary.md").read_text().partition("## Retired terms")[0]


def defined(text: str) -> list[str]:
    """The terms of the tables of a glossary; a row may define several."""
    rows = re.findall(r"^\| (.+?) \| .+ \|$", text, re.MULTILINE)
    return [term for row in rows if row != "term" for term in row.split(", ")]


def ambiguous(terms: list[str]) -> list[str]:
    """Terms that are defined twice, or once with and once without a context in brackets."""
    bare = Counter(re.sub(r" \(.*\)", "", term) for term in terms)
    qualified = Counter(term for term in terms if "(" in term)
    return [term for term in terms if bare[re.sub(r" \(.*\)", "", term)] > 1 and qualified[term] != 1]


def test_every_term_is_defined_once() -> None:
    terms = defined(GLOSSARY)
    assert {"channel", "block (of RCA)", "good", "idle", "theta"} <= set(terms)
    assert not ambiguous(terms)


@pytest.mark.parametrize("terms", [["drift", "age", "drift"], ["block", "block (of RCA)"], ["age (of x)"] * 2])
def test_terms_with_two_definitions_are_found(terms: list[str]) -> None:
    assert ambiguous(terms)
