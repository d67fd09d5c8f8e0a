"""What the documentation shows of the reproduction and of the studies is what they wrote."""

import re

import pandas
import pytest

import idleband as ib
from idleband.paper.claims import CLAIMS, FAILS, HOLDS, NO_EFFECT, UNDECIDED
from idleband.paper.plan import Size
from idleband.paper.readings import PROPOSED, READINGS
from idleband.paper.summary import COLUMNS
from idleband.policies.protocol import Feedback, Setup, Slot
from idleband.policies.registry import all_policies
from tests.conftest import ROOT

EXPLANATION = ROOT / "docs/explanation"
PAGE = (EXPLANATION / "claims.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]


def test_the_claims_page_has_the_papers_size() -> None:
    size = Size()
    made = re.search(
        r"([\d,]+) slots, (\d+) and (\d+) replications of the fast policies, (\d+) and (\d+) of MP-NUCB, seed 0", PAGE
    )
    assert made is not None
    assert [int(n.replace(",", "")) for n in made.groups()] == [
        size.horizon, size.replications, size.fewer, size.neural, size.neural_fewer,
    ]  # fmt: skip
    assert all(f"**{claim}** {words}" in PAGE for claim, words in CLAIMS.items())


def test_every_reading_has_its_verdicts() -> None:
    head, _, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in ROWS]
    assert head == ["reading", "policy", *(column.title for column in COLUMNS)]
    assert [row[:2] for row in rows] == [[reading.title, role] for reading in READINGS for role in PROPOSED]
    counted = rf"({HOLDS}\*?, (\d+) of \2|{FAILS}\*?, \d+ of \d+ reversed(, \d+ open)?|{UNDECIDED}\*?, \d+ of \d+ open)"
    for row in rows:
        for cell in row[2:]:
            assert cell in ("-", NO_EFFECT) or re.fullmatch(counted, cell), cell


def test_the_readme_counts_the_verdicts() -> None:
    """C1 and C2, on the static count, in words, as the claims page has them."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    c1 = re.search(r"\*\*C1\*\* (.*)", PAGE)
    c2 = re.search(r"\*\*C2\*\* .*By the static set: (.*?) By the contextual", PAGE)
    assert c1 is not None
    assert c2 is not None
    words = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    holds = []
    for role in PROPOSED:
        found = re.search(rf"{role}: holds in (\d+)", c1[1])
        holds.append(words[int(found[1]) if found else 0])
    total = words[len(READINGS)]
    assert f"holds for MP-LUCB in {holds[0]} and for MP-NUCB in {holds[1]} of the {total} readings" in readme
    assert ("the claim of fewer sub-optimal plays holds in none" in readme) == ("holds" not in c2[1])


def test_figures_are_shown_where_they_belong() -> None:
    page = (EXPLANATION / "reproduction.md").read_text()
    for name in ("figure1", "figure2", "figure3", "figure4", "map"):
        assert f"(../figures/{name}.png)" in page


def test_every_figure_is_in_the_gallery() -> None:
    page = (ROOT / "docs/gallery.md").read_text()
    for figure in (ROOT / "docs/figures").iterdir():
        assert figure.read_bytes().startswith(b"\x89PNG"), figure.name
        assert f"(figures/{figure.name})" in page, figure.name


def test_pages_include_what_the_studies_wrote() -> None:
    for page, names in {
        "beyond": ["goals", "optimum"],
        "robustness": ["robustness", "worlds"],
        "neural": ["neural-errors", "neural-rewards"],
        "reproduction": ["verdict-changes"],
        "decentralised": ["users_restless", "users_churn", "users_iid"],
        "reinforcement-learning": ["reinforcement_learning", "reinforcement_learning-trials"],
    }.items():
        text = (EXPLANATION / f"{page}.md").read_text()
        for name in names:
            assert f"{{include}} ../../studies/{name}.md" in text, name
            assert (ROOT / f"studies/{name}.md").read_text().startswith("| "), name


def test_pages_include_what_the_benchmarks_wrote() -> None:
    for page, names in {
        "performance": ["peers"],
        "roofline": ["", "-rates", "-parts", "-dimension", "-assembly", "-h200"],
    }.items():
        text = (EXPLANATION / f"{page}.md").read_text()
        for name in names:
            name = f"work_per_slot{name}" if page == "roofline" else name
            assert f"{{include}} ../../benchmarks/{name}.md" in text, name
            assert (ROOT / f"benchmarks/{name}.md").read_text().startswith("| "), name


def test_the_number_of_policies_is_right() -> None:
    count = sum(policy.source is None for policy in ib.POLICIES.values())
    alone = sum(policy.decentralised and policy.source is None for policy in all_policies().values())
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text()
        assert re.findall(r"with (\d+) policies", text) == [str(count)], page
        assert re.findall(r"(\d+)(?: such policies| policies of single users)", " ".join(text.split())) == [str(alone)]


def test_the_list_of_policies_is_complete() -> None:
    listed = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs/reference/policies.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(name for name, policy in all_policies().items() if policy.source is None)


def test_the_guide_to_policies_lists_every_field_of_the_records() -> None:
    page = (ROOT / "docs/how-to/write-a-policy.md").read_text().partition("## The records")[2].partition("\n## ")[0]
    for record in (Setup, Slot, Feedback):
        for field in record._fields:
            assert re.search(rf"`{field}[`\[]", page), (record.__name__, field)


RATIOS = {
    # Policy, reference and perturbation models of a range that a page states, as per cent in S1 to S4.
    (
        "mp-adaptive",
        "mp-belief",
        ("none", "linear", "quadratic", "cosine"),
    ): "it earns 99.98 to 100.03% of the reward of",
    ("mp-stay", "mp-belief", ("none",)): "in S1 to S4 80 to 99% of `mp-belief`",
    ("mp-belief", "best oracle", ("none",)): "99.95 to 99.96% of the oracle without perturbation",
    ("mp-belief-lucb", "oracle-belief", ("linear",)): "99.90 to 99.96% of the oracle under the linear model",
    ("mp-belief-lucb", "mp-belief", ("quadratic", "cosine")): "nonlinear models 99.3 to 99.98% of `mp-belief`",
    ("mp-belief-nucb", "oracle-belief", ("quadratic", "cosine")): "99.1 to 99.9% of the oracle under the quadratic and",
    ("mp-belief-nucb", "oracle-belief", ("linear",)): "99.68 to 99.87% under the linear one",
    ("mp-whittle", "mp-belief", ("none",)): "earns 0.3 to 1.7% less without perturbation",
}


@pytest.mark.parametrize(("policy", "reference", "models"), RATIOS)
def test_shares_on_the_page_about_beliefs_follow_from_the_ranking(
    policy: str, reference: str, models: tuple[str, ...]
) -> None:
    text = RATIOS[policy, reference, models]
    assert text in " ".join((EXPLANATION / "beyond.md").read_text().split())
    low, high = re.search(r"([\d.]+) to ([\d.]+)%", text).groups()  # type: ignore[union-attr]
    table = pandas.read_csv(ROOT / "studies/ranking.csv")
    rewards = table[table.perturbation.isin(models)].pivot(index="scenario", columns="label", values="reward")
    rewards["best oracle"] = rewards[["oracle-belief", "oracle-whittle"]].max(axis=1)
    shares = 100 * rewards[policy] / rewards[reference]
    if "less" in text:
        shares = 100 - shares
    for stated, found in ((low, shares.min()), (high, shares.max())):
        assert f"{found:.{len(stated.partition('.')[2])}f}" == stated


def test_the_ranking_page_is_of_the_studys_table() -> None:
    """Every reward of studies/ranking.csv is on the page, to four places, in the row of its policy."""
    page = (EXPLANATION / "ranking.md").read_text()
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
