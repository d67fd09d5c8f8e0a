"""The terms that docs/glossary.md retires are not used outside its table."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Words of the table "Retired terms" that have no other meaning here.
RETIRED = re.compile(
    r"\b(laws?|chances?|told|lessons?|desks?|offices?|clearness|Gilbert-Elliot|(MOST|LONGEST|SLOWEST|ENOUGH)_[A-Z_]+)\b"
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


@pytest.mark.parametrize("text", ["a quadratic law", "0.155 a slot", "MOST_SLOTS", "the chance of a collision"])
def test_retired_terms_are_recognised(text: str) -> None:
    assert RETIRED.search(text)


@pytest.mark.parametrize("text", ["Gilbert-Elliott", "once in a slot", "almost_all", "a lawful assumption"])
def test_other_words_are_accepted(text: str) -> None:
    assert not RETIRED.search(text)
