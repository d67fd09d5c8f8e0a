"""The report: one HTML file that needs nothing beside it, and the same claims as text and as a table.

Everything on it is computed from the stored runs. Figures are embedded as SVG that follows the reader's preference for
light or dark; their data are embedded as CSV.
"""

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from idleband.durable import write_durably
from idleband.errors import InputError
from idleband.paper import figures
from idleband.paper.claims import (
    CLAIMS,
    PAPERS_REPLICATIONS,
    Example,
    Judgement,
    judge,
    worked_example,
)
from idleband.paper.draw import DARK
from idleband.paper.figures import Drawing
from idleband.paper.parts import PARTS
from idleband.paper.plan import COST, QUICK, SMALLER, Size, Tuning
from idleband.paper.readings import (
    CLEAR,
    GRID,
    MAP,
    MAP_CLEAR,
    READINGS,
    SCENARIOS,
    Reading,
)
from idleband.paper.run import Evidence
from idleband.paper.summary import MARKS, PER_READING, claims_csv, in_short, map_in_short, summary, summary_markdown
from idleband.scenario.build import scenario
from idleband.scenario.presets import PRESETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Page(NamedTuple):
    report: Path
    claims: list[Judgement]
    size: Size
    missing: list[str]  # parts that have not been run
    command: str  # what runs them
    seconds: float  # processor time of the runs


def write_report(folder: Path) -> Page:
    """Claims, figures and page from what is stored in a folder."""
    evidence = Evidence(folder)
    parts = evidence.parts
    if not parts:
        raise InputError(f"{folder}: no part of it is finished; `{_command(evidence.size)} --out {folder}` goes on")
    claims = judge(evidence)
    drawn = [_Shown(drawing) for drawing in drawings(evidence)]
    for name in set(DRAWINGS) - {shown.drawing.name for shown in drawn}:  # of parts that are not complete any more
        for ending in ("svg", "csv", "png"):
            (folder / "figures" / f"{name}.{ending}").unlink(missing_ok=True)
    for shown in drawn:
        shown.write(folder / "figures")
    write_durably(folder / "claims.csv", claims_csv(claims).encode())
    write_durably(folder / "claims.md", summary_markdown(claims, evidence.size).encode())
    missing = [part for part in PARTS if part not in parts]
    write_durably(folder / "report.html", _html(evidence, claims, drawn, missing).encode())
    command = f"{_command(evidence.size)} --out {folder}"
    return Page(folder / "report.html", claims, evidence.size, missing, command, _seconds(evidence))


MAKERS: dict[str, Callable[[Evidence], Drawing]] = {
    "figure1": figures.figure1,
    "figure2": figures.figure2,
    "figure3": figures.figure3,
    "figure4": figures.figure4,
    "map": figures.the_map,
}
DRAWINGS = (*MAKERS, *(f"reading-{reading.key}" for reading in SMALLER))


def drawings(evidence: Evidence) -> list[Drawing]:
    """The figures of which the runs are there, in the order of the report."""
    found = [make(evidence) for part, make in MAKERS.items() if part in evidence.parts]
    if "readings" in evidence.parts:
        found += [figures.smaller(evidence, reading) for reading in SMALLER]
    return found


# --- figures as files and as parts of a page -------------------------------------------------------------------------


class _Shown:
    """A drawing, drawn."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        wide, narrow = (drawing.draw(drawing.table, narrow) for narrow in (False, True))
        self.wide, self.narrow = (
            svg(figure, f"{drawing.name}-{i}", drawing.title) for i, figure in enumerate((wide, narrow))
        )
        self.csv = drawing.table.to_csv(index=False, float_format="%.7g", lineterminator="\n")
        buffer = io.BytesIO()
        wide.savefig(buffer, format="png")
        self.png = buffer.getvalue()

    def write(self, folder: Path) -> None:
        name = self.drawing.name
        for ending, data in (("svg", self.wide), ("csv", self.csv.encode()), ("png", self.png)):
            write_durably(folder / f"{name}.{ending}", data)

    @staticmethod
    def _uri(data: bytes) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(data).decode()

    @property
    def wide_uri(self) -> str:
        return self._uri(self.wide)

    @property
    def narrow_uri(self) -> str:
        return self._uri(self.narrow)


def svg(figure: "Figure", salt: str, title: str) -> bytes:
    """A figure as SVG: text as text, the same bytes every time, and dark where the reader prefers that."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = buffer.getvalue().decode()
    # A hundredth of a point is fine enough, and half the size; inside tags only, or labels would lose digits, too.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d\d)\d+", r"\1", tag[0]), text)
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark} !important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    )
    style = f"<style>@media screen and (prefers-color-scheme: dark){{{rules}}}</style>"
    start = re.search(r"<svg[^>]*>", text)
    assert start is not None
    return (text[: start.end()] + style + text[start.end() :]).encode()


# --- the page --------------------------------------------------------------------------------------------------------


def _html(evidence: Evidence, claims: list[Judgement], drawn: list[_Shown], missing: list[str]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("idleband.paper", "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("report.html").render(
        version=version("idleband"),
        size=evidence.size,
        command=_command(evidence.size),
        tuning_seed=evidence.size.tuning_seed,
        papers_replications=PAPERS_REPLICATIONS,
        missing=missing,
        parts=PARTS,
        run=_what_was_run(evidence),
        claims=CLAIMS,
        per_reading=PER_READING,
        summary=summary(claims),
        short=in_short(claims),
        map_in_short=map_in_short(claims),
        judgements=claims,
        marks=MARKS,
        shown=drawn,
        readings=READINGS,
        map_clear=MAP_CLEAR,
        clear=CLEAR,
        scenarios=SCENARIOS,
        presets=PRESETS,
        means={name: scenario(name).table_means for name in SCENARIOS},
        example=Example(tuple(worked_example())),
        choices=_choices(evidence),
        grid=GRID,
    )


def _what_was_run(evidence: Evidence) -> dict[str, Any]:
    """Counts, time and machine, from the manifests of the studies."""
    manifests = evidence.manifests
    used = evidence.used.values()
    results = [result for one in used for result in one.study.results]
    reported = [one for one in used if one.run.spec.seed == evidence.size.seed]
    replications = {
        kind: {r.replications for one in reported if one.run.kind == kind for r in one.study.results} for kind in COST
    }
    return {
        "studies": len(used),
        "runs": sum(result.replications for result in results),
        "slots": sum(result.replications * result.horizon for result in results),
        "minutes": _seconds(evidence) / 60,
        "machines": sorted({f"{m['machine']['processor']}, {m['machine']['cores']} cores" for m in manifests}),
        "versions": manifests[0]["versions"],
        "mixed": len({json.dumps([m["versions"], m["sources"]]) for m in manifests}) > 1,
        "replications": {
            kind: " to ".join(map(str, sorted({min(n), max(n)}))) for kind, n in replications.items() if n
        },
    }


def _seconds(evidence: Evidence) -> float:
    """Processor time of all runs."""
    return sum(float(manifest["seconds"]) for manifest in evidence.manifests)


def _command(size: Size) -> str:
    """What runs a reproduction of this size."""
    words, base = ["idleband reproduce"], replace(Size(), seed=size.seed)
    if size.horizon == QUICK.horizon:
        words, base = [*words, "--quick"], replace(QUICK, seed=size.seed)
    if size != base:
        words.append(f"--replications {size.replications}")
    return " ".join(words + [f"--seed {size.seed}"] * (size.seed != 0))


def _choices(evidence: Evidence) -> list[tuple[Reading, list[Tuning | None]]]:
    """The chosen values, one row per reading."""
    return [
        (reading, [evidence.choices.get((reading.key, preset)) for preset in SCENARIOS])
        for reading in dict.fromkeys((*READINGS, *MAP))
        if any((reading.key, preset) in evidence.choices for preset in SCENARIOS)
    ]
