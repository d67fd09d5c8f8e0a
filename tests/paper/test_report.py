"""The report: stored numbers, no external resources, accessible markup."""

import base64
import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pandas
import pytest

import idleband as ib
from idleband.paper import report as paper_report
from idleband.paper.claims import CLAIMS, Judgement
from idleband.paper.drawing import DARK
from idleband.paper.figures import ReportFigure
from idleband.paper.folder import claim_folder
from idleband.paper.parts import PARTS
from idleband.paper.readings import MAP, READINGS
from idleband.paper.report import svg, write_report
from idleband.paper.summary import MARKS, NOTES, in_short, map_in_short, summary_markdown, summary_text
from idleband.scenario.presets import PRESETS
from tests.paper import stored
from tests.paper.stored import SCENARIOS, SIZE

TITLES = {reading.title: reading.key for reading in (*READINGS, *MAP)}
VOID = {"meta", "link", "img", "source", "br", "input", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Element | str"] = field(default_factory=list)

    def walk(self) -> Iterator["Element"]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, tag: str, **attributes: str) -> list["Element"]:
        return [e for e in self.walk() if e.tag == tag and attributes.items() <= e.attributes.items()]

    def one(self, tag: str, **attributes: str) -> "Element":
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


class Reader(HTMLParser):
    """Parser that builds a tree of elements and checks that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("document")
        self.open = [self.root]
        self.feed(text)
        self.close()
        assert [e.tag for e in self.open] == ["document"]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attributes}) == len(attributes)
        element = Element(tag, {name: value or "" for name, value in attributes})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(folder: Path) -> Element:
    return Reader((folder / "report.html").read_text(encoding="utf-8")).root


@pytest.fixture(scope="module")
def page(whole: Path) -> Element:
    return read(whole)


@pytest.fixture(scope="module")
def claims(whole: Path) -> list[dict[str, str]]:
    """Return the rows of claims.csv, which tests/paper/test_claims.py compares with the stored studies."""
    with (whole / "claims.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def partial(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a reproduction of figure 4 with its report, in a folder that contained another report."""
    place = tmp_path_factory.mktemp("partial") / "out"
    folder = stored.some_studies(whole, place, stored.FIGURE_4_STUDIES.fullmatch)
    (folder / "figures").mkdir()
    for name in ("figure1.svg", "figure1.csv", "reading-none.png", "figure4.svg", "mine.svg"):
        (folder / "figures" / name).write_text("stale")
    assert write_report(folder).missing == [part for part in PARTS if part != "figure4"]
    return folder


def rows_of(table: Element) -> list[list[str]]:
    return [[cell.words for cell in row.walk() if cell.tag in ("th", "td")] for row in table.all("tr")]


def table_in(page: Element, section: str, label: str | None = None) -> list[list[str]]:
    place = page.one("section", id=section)
    if label is not None:
        place = place.one("div", **{"aria-label": label})
    return rows_of(place.one("table"))


# --- numbers ---------------------------------------------------------------------------------------------------------


def figure_of(page: Element, name: str) -> Element:
    return page.one("figure", id=name)


NAMES = [
    *("figure1", "figure2", "figure3", "figure4", "map"),
    *(f"reading-{key}" for key in list(stored.POLICIES)[2:]),
]


def test_report_contains_all_figures(page: Element) -> None:
    assert [figure.attributes["id"] for figure in page.all("figure")] == NAMES


def test_embedded_data_are_the_tables(page: Element, whole: Path, drawn: dict[str, ReportFigure]) -> None:
    """They agree to seven digits; tests/paper/test_figures.py compares the tables with the stored studies."""
    for drawing in drawn.values():
        text = figure_of(page, drawing.name).one("script", type="text/csv").text.lstrip("\n")
        assert text == (whole / "figures" / f"{drawing.name}.csv").read_text()
        found = pandas.read_csv(io.StringIO(text))
        pandas.testing.assert_frame_equal(found, drawing.table, check_dtype=False, rtol=1e-6, atol=0)


def test_embedded_images_are_the_files(page: Element, whole: Path) -> None:
    for name in NAMES:
        picture = figure_of(page, name).one("picture")
        wide = picture.one("img").attributes["src"]
        narrow = picture.one("source").attributes["srcset"]
        head = "data:image/svg+xml;base64,"
        assert wide.startswith(head)
        assert narrow.startswith(head)
        assert base64.b64decode(wide[len(head) :]) == (whole / "figures" / f"{name}.svg").read_bytes()
        assert narrow != wide
        sizes = [
            float(ElementTree.fromstring(base64.b64decode(uri[len(head) :])).attrib["width"].removesuffix("pt"))
            for uri in (wide, narrow)
        ]
        assert sizes[1] < 400 < sizes[0]
        assert (whole / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_figures_have_captions_and_alternative_text(page: Element, drawn: dict[str, ReportFigure]) -> None:
    for drawing in drawn.values():
        figure = figure_of(page, drawing.name)
        assert figure.one("img").attributes["alt"] == drawing.alternative
        assert figure.one("figcaption").words == drawing.caption
        assert next(e for e in figure.walk() if e.tag in ("h2", "h3")).words == drawing.title


def judged_in_words(row: dict[str, str]) -> str:
    """Return a verdict with its mark and, if there is an effect, its counts."""
    words = f"{MARKS[row['verdict']]} {row['verdict']}"
    return words if row["verdict"] == "no effect" else f"{words}, {counts_in_words(row)}"


def counts_in_words(row: dict[str, str]) -> str:
    agree, contrary, left = (int(row[name]) for name in ("agree", "reversed", "open"))
    total = agree + contrary + left
    if row["verdict"] == "holds":
        return f"{agree} of {total}"
    if row["verdict"] == "undecided":
        return f"{left} of {total} open"
    return f"{contrary} of {total} reversed" + (f", {left} open" if left else "")


def test_listed_verdicts_are_those_of_claims_csv(page: Element, claims: list[dict[str, str]]) -> None:
    assert len(page.one("section", id="verdicts").all("table")) == len(PER_READING)
    for claim in PER_READING:
        head, *found = table_in(page, "verdicts", f"Verdicts on {claim}")
        assert head == ["Reading", "Policy", "Measure", "Against", "Verdict", "Of five", "Replications", "Why"]
        expected = [row for row in claims if row["claim"] == claim]
        assert [[TITLES[title], *rest] for title, *rest in found] == [
            [
                row["reading"], row["policy"], row["reference"], row["against"],
                judged_in_words(row), row["of_five"] or "-", row["replications"], row["why"],
            ]
            for row in expected
        ]  # fmt: skip
        headings = page.one("section", id="verdicts").all("summary")
        heading = next(e for e in headings if e.words.startswith(f"{claim} "))
        assert heading.words == f"{claim} {CLAIMS[claim]} ({len(expected)} verdicts)"


PER_READING = ("C1", "C2", "C3", "C3b", "C4", "C5b")  # C5 concerns the worked example only
HEADLINES = {  # columns of the summary: claim, quantity, baselines
    "C1": ("C1", "static or contextual regret", "tuned"),
    "C2, static": ("C2", "static set", "tuned"),
    "C2, contextual": ("C2", "contextual values", "tuned"),
    "C3": ("C3", "static regret", "M = 1 to 9"),
    "C3b": ("C3b", "static regret", "M = 1 to 9"),
    "C4": ("C4", "static or contextual regret", ""),
    "C5b (our reading)": ("C5b", "cost of a play", "tuned"),
}
SHORT = ("C1", "C2s", "C2c", "C3", "C3b", "C4", "C5b")  # in a terminal
Cells = dict[
    str, tuple[dict[str, str], str]
]  # by policy: the row of claims.csv, and the textbook verdict if it differs


def headlines(claims: list[dict[str, str]]) -> dict[str, dict[str, Cells]]:
    """Return the cells of the summary by reading and column."""
    found: dict[str, dict[str, Cells]] = {}
    for reading in READINGS:
        row = found[reading.title] = {}
        for title, (claim, reference, against) in HEADLINES.items():
            rows = [r for r in claims if (r["claim"], r["reading"], r["reference"]) == (claim, reading.key, reference)]
            verdicts = {(r["policy"], r["against"]): r for r in rows}
            row[title] = {}
            for role in ("MP-LUCB", "MP-NUCB"):
                if (role, against) in verdicts:
                    shown = verdicts[role, against]
                    other = verdicts.get((role, "textbook"), shown)["verdict"]
                    row[title][role] = (shown, "" if other == shown["verdict"] else other)
    return found


def test_summary_contains_the_verdicts_of_claims_csv(page: Element, claims: list[dict[str, str]]) -> None:
    head, *rows = table_in(page, "claims")
    assert head == ["Reading", *HEADLINES]
    expected = headlines(claims)
    assert [row[0] for row in rows] == list(expected)
    words = set()
    for title, *cells in rows:
        for claim, cell in zip(HEADLINES, cells, strict=True):
            text = "".join(
                f"{role} {judged_in_words(row)}" + (f"textbook L: {other}" if other else "")
                for role, (row, other) in expected[title][claim].items()
            )
            assert cell == text, (title, claim)
            words |= set(re.findall("holds|fails|undecided|no effect", cell))
    assert len(words) > 2  # otherwise a wrong verdict would not be noticed
    for span in page.all("span"):
        kind = span.attributes.get("class", "")
        if kind.startswith("verdict "):
            word = kind.split()[1].replace("-", " ")
            assert span.words == f"{MARKS[word]} {word}"


def test_claims_are_summarised_in_sentences(page: Element, judged: list[Judgement]) -> None:
    """The sentences are tested in tests/paper/test_summary.py."""
    short = in_short(judged)
    found = [item.words for item in page.one("section", id="claims").all("li")]
    assert found == [f"{name} {words}. {short[name]}" for name, words in CLAIMS.items()]
    assert f"{map_in_short(judged)} (*: another verdict with the textbook L.)" in page.one("section", id="claims").words


def in_markdown(cells: Cells, role: str) -> str:
    if role not in cells:
        return "-"
    row, other = cells[role]
    counts = "" if row["verdict"] == "no effect" else f", {counts_in_words(row)}"
    return row["verdict"] + "*" * bool(other) + counts


def in_terminal(cells: Cells, role: str) -> str:
    """Return a letter, a star, and the comparisons that decide."""
    if role not in cells:
        return "-"
    row, other = cells[role]
    letter, decides = {
        "holds": ("+", "agree"), "fails": ("x", "reversed"), "undecided": ("~", "open"), "no effect": ("=", "")
    }[row["verdict"]]  # fmt: skip
    total = sum(int(row[name]) for name in ("agree", "reversed", "open"))
    return letter + "*" * bool(other) + (f" {row[decides]}/{total}" if decides else "")


def test_markdown_summary_contains_the_verdicts(
    whole: Path, claims: list[dict[str, str]], judged: list[Judgement]
) -> None:
    text = (whole / "claims.md").read_text()
    assert text == summary_markdown(judged, SIZE)
    title, made, words, table, the_map, notes = text.rstrip("\n").split("\n\n")
    assert title == "# The paper's claims, reading by reading"
    assert "110 slots, 6 and 3 replications of the fast policies, 4 and 2 of MP-NUCB, seed 0." in made
    short = in_short(judged)
    assert words.splitlines() == [f"- **{claim}** {meaning}. {short[claim]}" for claim, meaning in CLAIMS.items()]
    assert (the_map, notes) == (map_in_short(judged), NOTES)
    head, rule, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert head == ["reading", "policy", *HEADLINES]
    assert set("".join(rule)) == {"-"}
    expected = headlines(claims)
    assert [tuple(row[:2]) for row in rows] == [(title, role) for title in expected for role in ("MP-LUCB", "MP-NUCB")]
    for title, role, *cells in rows:
        assert cells == [in_markdown(expected[title][column], role) for column in HEADLINES]


def test_terminal_summary_contains_the_verdicts(claims: list[dict[str, str]], judged: list[Judgement]) -> None:
    text = summary_text(judged)
    words, table, letters, the_map, notes, example = text.split("\n\n")
    assert max(map(len, text.splitlines())) <= 80
    assert words.split() == [word for claim, meaning in CLAIMS.items() for word in (claim, *meaning.split())]
    head, *lines = [re.split(r" {2,}", line.strip()) for line in table.splitlines()]
    assert head == ["policy", *SHORT]
    found = iter(lines)
    for title, row in headlines(claims).items():
        assert next(found) == [title]
        for role in ("MP-LUCB", "MP-NUCB"):
            assert next(found) == [role, *(in_terminal(row[column], role) for column in HEADLINES)]
    assert next(found, None) is None
    assert all(words in letters for words in ("+ holds", "x fails", "~ undecided", "= no effect", "- not judged"))
    assert the_map.split() == map_in_short(judged).split()
    assert notes == NOTES
    assert example.split() == f"C5: {in_short(judged)['C5']}".split()


def test_worked_example_table_has_costs_and_printed_values(page: Element) -> None:
    rows = table_in(page, "example")[1:]
    scenario = ib.scenario("S4")
    assert len(rows) == 4
    for (_, channels, suboptimal, cost, printed), expected in zip(rows, (0.155, 0.169, 0.26, 0.035), strict=True):
        selection = channels.split(", ")
        assert float(printed) == expected
        assert cost == f"{scenario.cost(selection):.4f}"
        assert abs(float(cost) - expected) < 0.001
        assert int(suboptimal) == len(set(selection) & {"ch1", "ch3", "ch6", "ch9", "ch10"})
    assert "two policies lose 0.324 and 0.295" in page.one("section", id="claims").words


def test_tables_1_and_2_are_those_of_the_presets(page: Element) -> None:
    first = table_in(page, "tables", "Table I")[1:]
    second = table_in(page, "tables", "Table II")[1:]
    for i, name in enumerate(SCENARIOS):
        preset = PRESETS[name]
        for row, what in zip(first[2 * i : 2 * i + 2], ("p01", "p10"), strict=True):
            assert row[:2] == [name, what]
            assert [float(p) for p in row[2:]] == list(getattr(preset, what))
        means = [0.1 + 0.9 * p / (p + q) for p, q in zip(preset.p01, preset.p10, strict=True)]
        assert second[2 * i] == [name, "computed", *(f"{mean:.4f}" for mean in means)]
        assert second[2 * i + 1] == [name, "printed", *map(str, preset.printed_means)]


def test_tuned_parameters_are_those_of_the_tuning_studies(page: Element, whole: Path) -> None:
    head, *rows = table_in(page, "run", "Tuned parameters")
    assert head == ["Reading", *SCENARIOS]
    assert [TITLES[row[0]] for row in rows] == [*stored.POLICIES, *stored.ONLY_IN_MAP]
    for title, *cells in rows:
        key = TITLES[title]
        for preset, cell in zip(SCENARIOS, cells, strict=True):
            expected = f"beta {stored.beta(whole, key, preset):g}"
            if key in stored.POLICIES:
                expected += f"gamma {stored.gamma(whole, key, preset):g}"
            for name, L in stored.tuned_L(whole, key, preset).items():
                expected += f"{name} L {L:g}"
            assert cell == expected, (key, preset)


def test_run_section_lists_sizes_versions_and_times(page: Element, whole: Path) -> None:
    text = page.one("section", id="run").words
    assert "110 slots, K = 10 channels, contexts of 8 uniform entries, M = 5 users, seed 0." in text
    assert (
        "Replications: 6 of the fast policies in the first two readings, and in figures 3 and 4 in the first; 3 in the"
        " other readings, and in figure 3 in the second; 2 in the map beyond the readings, and in figure 4 beyond the"
        " first; 4 of MP-NUCB in the first two readings (figures 1 and 2); 2 of MP-NUCB in the other readings and in"
        " figure 3. The paper has 5; the verdicts from the first 5 are listed as well."
    ) in text
    assert "of 0.1, 0.5, 1, 10, 100, 1000 the value with the highest mean reward over 1 replication on" in text
    assert "(seed 1000003)" in text
    assert "of 0.1, 0.5, 1, 10 the value with the highest reward in one run of 22 slots on these paths" in text
    places = list((whole / "studies").iterdir())
    counts = {p.name: stored.study(whole, p.name).groupby(["label", "replication"]).ngroups for p in places}
    runs = sum(counts.values())
    slots = sum(count * (22 if name.endswith("-gamma") else SIZE.horizon) for name, count in counts.items())
    manifests = [json.loads((place / "manifest.json").read_text()) for place in places]
    minutes = sum(manifest["seconds"] for manifest in manifests) / 60
    assert f"{len(places):,} studies, {runs:,} runs, {slots / 1e6:,.0f} million slots in" in text
    assert f"in {minutes:.1f} minutes of processor time" in text
    machine = manifests[0]["machine"]
    assert f"({machine['processor']}, {machine['cores']} cores)" in text
    assert all(f"{name} {number}" in text for name, number in manifests[0]["versions"].items())


def test_readings_are_counted_and_listed(page: Element) -> None:
    number = len(stored.POLICIES)
    assert f"its tables and figures for {number} readings of the text" in page.one("header").words
    points = f"and the first of them at {len(stored.MAP)} points of the map; none was left out."
    judged = f"{number} of {number} readings were judged, {points}"
    assert judged in page.one("section", id="claims").words
    place = page.one("section", id="readings")
    names = [f"{r.title} ({r.linear.label}, {r.neural.label})" for r in READINGS]
    assert [e.words for e in place.all("dt")] == names
    assert [e.words for e in place.all("dd")] == [f"{reading.knows}." for reading in READINGS]


# --- a self-contained page -------------------------------------------------------------------------------------------


@pytest.fixture(params=["whole", "partial"])
def either(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def test_report_loads_no_external_resources(either: Path) -> None:
    document = read(either)
    for element in document.walk():
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            address = element.attributes.get(name)
            if address is None:
                continue
            if element.tag == "a" and address.startswith("figures/"):  # links for readers without scripts
                assert (either / address).is_file()
            else:
                assert urlsplit(address).scheme == "data" or address.startswith("#"), address
    assert "@import" not in document.one("style").text
    assert "url(" not in document.one("style").text
    scripts = [e.text for e in document.all("script") if "type" not in e.attributes]
    assert not any(re.search(r"https?:|\bimport\b|\bfetch\(|XMLHttp", text) for text in scripts)
    assert "http" not in re.sub(r"data:[^\"]*", "", (either / "report.html").read_text())


def test_internal_links_have_targets(either: Path) -> None:
    document = read(either)
    ids = [e.attributes["id"] for e in document.walk() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    links = [e.attributes["href"][1:] for e in document.all("a") if e.attributes["href"].startswith("#")]
    assert links
    assert set(links) <= set(ids)
    assert len(document.one("nav").all("a")) == 7 + len(document.all("figure")) - sum(
        i.startswith("reading-") for i in ids
    )


def test_report_has_accessibility_attributes(either: Path) -> None:
    document = read(either)
    assert document.one("html").attributes["lang"] == "en"
    assert document.one("h1").words
    assert document.one("title").words
    assert all(image.attributes["alt"].strip() for image in document.all("img"))
    levels = [int(e.tag[1]) for e in document.walk() if re.fullmatch(r"h\d", e.tag)]
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    assert all("scope" in e.attributes for e in document.all("th"))
    assert {e.attributes["download"].rsplit(".")[-1] for e in document.all("a") if "download" in e.attributes} == {
        "svg",
        "csv",
    }


def test_special_characters_are_escaped(either: Path, partial: Path) -> None:
    """P(n<1) stands in titles, captions and alternative texts; html.parser would lose what follows a bare <."""
    text = (either / "report.html").read_text()
    body = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert "P(n&lt;1)" in body
    assert "P(n<1)" not in body
    assert "RCA&#39;s frame" in body
    assert "against P(n<1)" in read(partial).one("header").words


def test_missing_parts_are_listed(page: Element, partial: Path) -> None:
    assert "This reproduction is not complete" not in page.text
    document = read(partial)
    notes = [e.words for e in document.all("p", **{"class": "note"})]
    assert notes[1].startswith("This reproduction is not complete. Missing: ")
    assert [meaning in notes[1] for meaning in PARTS.values()] == [part != "figure4" for part in PARTS]
    assert [e.attributes["id"] for e in document.all("figure")] == ["figure4"]
    kept = {"mine.svg", *(f"figure4.{kind}" for kind in ("csv", "png", "svg"))}  # files of the user are kept
    assert {p.name for p in (partial / "figures").iterdir()} == kept
    with (partial / "claims.csv").open(newline="") as file:
        assert {row["claim"] for row in csv.DictReader(file)} == {"C4", "C5"}
    rows = table_in(document, "claims")[1:]
    assert [row[0] for row in rows] == [reading.title for reading in READINGS if reading.key in stored.LINEAR_MODEL]
    assert all([bool(cell) for cell in row[1:]] == [column == "C4" for column in HEADLINES] for row in rows)
    text = document.one("section", id="claims").words
    assert f"{len(stored.LINEAR_MODEL)} of {len(stored.POLICIES)} readings were judged. The default" in text
    assert "left out" not in text
    assert "the map" not in text
    items = [item.words for item in document.one("section", id="claims").all("li")]
    for item, (name, words) in zip(items, CLAIMS.items(), strict=True):  # no sentence about missing parts
        assert item.endswith(f" {words}.") == (name not in ("C4", "C5"))
    run = document.one("section", id="run").words
    assert "figures 3 and 4 in the first; 2 in the map beyond the readings" in run
    assert "of MP-NUCB in the first two readings" not in run


def test_figure_of_a_part_does_not_depend_on_other_parts(whole: Path, partial: Path) -> None:
    for kind in ("csv", "svg", "png"):
        name = f"figures/figure4.{kind}"
        assert (partial / name).read_bytes() == (whole / name).read_bytes()
    with (whole / "claims.csv").open() as file:
        expected = [line for line in file if line.startswith(("claim,", "C4,", "C5,"))]
    assert (partial / "claims.csv").read_text() == "".join(expected)


def test_listed_replications_are_those_of_the_data(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may differ from those requested, where only some parts were extended."""
    monkeypatch.setattr(paper_report, "report_figures", lambda studies: [])
    kept = re.compile(rf"{stored.FIGURE_4_STUDIES.pattern}|{stored.FIGURE_3_STUDIES.pattern}")
    folder = stored.some_studies(whole, tmp_path / "out", kept.fullmatch)
    stored.rewrite(folder, "S1-slot-played-users-3", lambda rows: rows[rows.replication < 3])
    claim_folder(folder, replace(SIZE, replications=20, neural_fewer=7))
    page = write_report(folder)
    assert page.missing == ["figure1", "figure2", "readings", "map"]
    run = read(folder).one("section", id="run").words
    assert "Replications: 3 to 6 of the fast policies in the first two readings, and" in run
    assert "; 2 of MP-NUCB in the other readings and in figure 3." in run
    found = {one.replications for one in page.claims if (one.claim, one.reading.key) == ("C3", "slot-played")}
    assert found == {3, 2}


def test_report_without_results_is_refused(whole: Path, tmp_path: Path) -> None:
    folder = stored.some_studies(whole, tmp_path / "out", lambda name: name == "S1-slot-played-tuning")
    on = r"out: no part is finished; `idleband reproduce --replications 6 --out .*` continues"
    with pytest.raises(ib.InputError, match=on):
        write_report(folder)
    assert {p.name for p in folder.iterdir()} == {"reproduction.toml", "studies"}


def test_small_size_is_called_a_short_version(
    page: Element, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [e.words for e in page.all("p", **{"class": "note"})]
    assert len(first) == 1
    assert first[0].startswith("Short version. 110 slots and 6 replications; the paper has 100,000 and five.")
    monkeypatch.setattr(paper_report, "report_figures", lambda studies: [])
    folder = stored.some_studies(whole, tmp_path / "out", stored.FIGURE_4_STUDIES.fullmatch)
    (folder / "reproduction.toml").unlink()
    claim_folder(folder, replace(SIZE, horizon=100_000))
    write_report(folder)
    assert "Short version." not in read(folder).text


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(page: Element) -> list[str]:
    uris = [e.attributes["src"] for e in page.all("img")] + [e.attributes["srcset"] for e in page.all("source")]
    return [base64.b64decode(uri.partition(",")[2]).decode() for uri in uris]


def test_svg_has_light_and_dark_colours(images: list[str]) -> None:
    assert len(images) == 2 * len(NAMES)
    for text in images:
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        style = root[0]
        assert style.tag == "{http://www.w3.org/2000/svg}style"
        assert str(style.text).startswith("@media screen and (prefers-color-scheme: dark){")
        for light, dark in DARK.items():
            for what in ("fill", "stroke"):
                assert f'[style*="{what}: {light}"]{{{what}:{dark} !important}}' in str(style.text)
        drawn = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text))
        assert drawn - set(DARK) <= {"#000000"} - set(re.findall(r"<text[^>]*(#[0-9a-f]{6})", text))


def test_svg_contains_no_date(images: list[str]) -> None:
    for text in images:
        assert "dc:date" not in text
        assert not re.search(r"\b20\d\d-\d\d", text)
        assert "<dc:title>" in text


def test_rounding_of_svg_keeps_digits_of_labels() -> None:
    """Only coordinates are rounded."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([0.123456, 2.0], [1.0, 1.0])
    axes.set_yticks([0.99875, 1.0, 1.00125], ["0.99875", "1.00000", "1.00125"])
    axes.set_title("from 0.4321 to 0.98765")
    text = svg(figure, "salt", "a title of 1.2345").decode()
    root = ElementTree.fromstring(text)
    written = {"".join(e.itertext()).strip() for e in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"0.99875", "1.00000", "1.00125", "from 0.4321 to 0.98765"} <= written
    paths = " ".join(e.attrib["d"] for e in root.iter("{http://www.w3.org/2000/svg}path"))
    assert not re.search(r"\.\d{3}", paths)
    assert svg(figure, "salt", "a title of 1.2345").decode() == text
