"""What the README and the docs show of the reproduction is what the command wrote."""

import re

import pandas

import idleband as ib
from idleband.paper.claims import CLAIMS, FAILS, HOLDS, UNDECIDED
from idleband.paper.plan import Size
from idleband.paper.readings import READINGS
from idleband.paper.summary import PER_READING
from tests.conftest import ROOT

PAGE = (ROOT / "docs/claims.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]


def test_the_claims_page_is_of_the_papers_size() -> None:
    size = Size()
    made = re.search(
        r"([\d,]+) slots, (\d+) replications of the fast policies, (\d+) and (\d+) of MP-NUCB, seed 0", PAGE
    )
    assert made is not None
    assert [int(n.replace(",", "")) for n in made.groups()] == [
        size.horizon, size.replications, size.neural, size.neural_fewer,
    ]  # fmt: skip
    assert all(f"**{claim}** {words}" in PAGE for claim, words in CLAIMS.items())


def test_every_reading_has_its_verdicts() -> None:
    head, _, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in ROWS]
    assert head[1:] == list(PER_READING)
    assert [row[0] for row in rows] == [reading.title for reading in READINGS]
    words = {f"{word}{star}" for word in (HOLDS, FAILS, UNDECIDED) for star in ("", "*")}
    for row in rows:
        for cell in row[1:]:
            assert cell == "-" or set(cell.split(" / ")) <= words


def test_the_readme_shows_the_same_table() -> None:
    assert "\n".join(ROWS) in (ROOT / "README.md").read_text()


def test_figures_are_shown_where_they_belong() -> None:
    page = (ROOT / "docs/reproduction.md").read_text()
    for name in ("figure1", "figure2", "figure3", "figure4", "map"):
        assert f"(figures/{name}.png)" in page
        assert (ROOT / f"docs/figures/{name}.png").read_bytes().startswith(b"\x89PNG")


def test_beyond_shows_what_the_studies_wrote() -> None:
    page = (ROOT / "docs/beyond.md").read_text()
    for name in ("promises.md", "robustness.md"):
        assert (ROOT / "studies" / name).read_text().strip() in page, name
    assert not re.search(r"@\w+@", page)  # nothing was left to be filled in


def test_the_ranking_page_is_of_the_studys_table() -> None:
    """Every reward of studies/ranking.csv stands on the page, to four places, in the row of its policy."""
    page = (ROOT / "docs/ranking.md").read_text()
    parts = dict(zip(("none", "linear", "quadratic", "cosine"), page.split("\n## ")[1:], strict=True))
    table = pandas.read_csv(ROOT / "studies/ranking.csv")
    assert set(table.horizon) == {100_000}
    assert set(table.replications) == {20}
    for row in table.itertuples():
        line = next(line for line in parts[row.perturbation].splitlines() if line.startswith(f"| `{row.label}` |"))
        assert f"{row.reward:.4f}" in line, row.label
    for model in parts:
        assert (ROOT / f"docs/figures/ranking-{model}.png").exists()
        ranked = set(table[table.perturbation == model].policy)
        networks = {name for name, policy in ib.POLICIES.items() if "covariance" in policy.parameters}
        assert set(ib.POLICIES) - ranked <= networks
