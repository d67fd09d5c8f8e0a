"""The report: one HTML file without external resources, and the same claims as Markdown and CSV.

Everything is computed from the stored studies. Figures are embedded as SVG that follows the preference of the reader
for light or dark pages; their data are embedded as CSV.
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
    NO_EFFECT,
    PAPERS_REPLICATIONS,
    Judgement,
    WorkedExample,
    judge,
    worked_example,
)
from idleband.paper.drawing import DARK
from idleband.paper.figures import ReportFigure
from idleband.paper.parts import PARTS
from idleband.paper.plan import COST, QUICK, SMALLER, Size, TunedParameters
from idleband.paper.readings import (
    CLEAR,
    GAMMA_GRID,
    GRID,
    MAP,
    READINGS,
    SCENARIOS,
    Reading,
)
from idleband.paper.stored import StoredStudies
from idleband.paper.summary import COLUMNS, MARKS, claims_csv, in_short, map_in_short, summary, summary_markdown
from idleband.reporting.html import render
from idleband.scenario.build import scenario
from idleband.scenario.presets import PRESETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Report(NamedTuple):
    """A written report and what it is based on."""

    path: Path
    claims: list[Judgement]
    size: Size
    missing: list[str]  # parts that are not stored
    command: str  # the command that runs them
    seconds: float  # processor time of the runs


def write_report(folder: Path) -> Report:
    """Write claims, figures and report from the studies stored in a folder."""
    stored = StoredStudies(folder)
    parts = stored.parts
    if not parts:
        raise InputError(f"{folder}: no part is finished; `{_command(stored.size)} --out {folder}` continues")
    claims = judge(stored)
    drawn = [_RenderedFigure(figure) for figure in report_figures(stored)]
    for name in set(FIGURE_NAMES) - {shown.figure.name for shown in drawn}:  # of parts that are no longer complete
        for ending in ("svg", "csv", "png"):
            (folder / "figures" / f"{name}.{ending}").unlink(missing_ok=True)
    for shown in drawn:
        shown.write(folder / "figures")
    write_durably(folder / "claims.csv", claims_csv(claims).encode())
    write_durably(folder / "claims.md", summary_markdown(claims, stored.size).encode())
    missing = [part for part in PARTS if part not in parts]
    write_durably(folder / "report.html", _html(stored, claims, drawn, missing).encode())
    command = f"{_command(stored.size)} --out {folder}"
    return Report(folder / "report.html", claims, stored.size, missing, command, _seconds(stored))


MAKERS: dict[str, Callable[[StoredStudies], ReportFigure]] = {
    "figure1": figures.figure1,
    "figure2": figures.figure2,
    "figure3": figures.figure3,
    "figure4": figures.figure4,
    "map": figures.the_map,
}
FIGURE_NAMES = (*MAKERS, *(f"reading-{reading.key}" for reading in SMALLER))


def report_figures(stored: StoredStudies) -> list[ReportFigure]:
    """Return the figures whose studies are stored, in the order of the report."""
    found = [make(stored) for part, make in MAKERS.items() if part in stored.parts]
    if "readings" in stored.parts:
        found += [figures.smaller(stored, reading) for reading in SMALLER]
    return found


# --- figures as files and as parts of a page -------------------------------------------------------------------------


class _RenderedFigure:
    """A figure of the report, drawn wide and narrow."""

    def __init__(self, figure: ReportFigure) -> None:
        self.figure = figure
        wide, narrow = (figure.draw(figure.table, narrow) for narrow in (False, True))
        self.wide, self.narrow = (
            svg(drawn, f"{figure.name}-{i}", figure.title) for i, drawn in enumerate((wide, narrow))
        )
        self.csv = figure.table.to_csv(index=False, float_format="%.7g", lineterminator="\n")
        buffer = io.BytesIO()
        wide.savefig(buffer, format="png")
        self.png = buffer.getvalue()

    def write(self, folder: Path) -> None:
        name = self.figure.name
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
    """Return a figure as SVG with text as text, reproducible bytes, and dark colours where the reader prefers them."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = buffer.getvalue().decode()
    # Coordinates with two decimals take half the space. Only tags are changed, or labels would lose digits as well.
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


# --- HTML --------------------------------------------------------------------------------------------------------


def _html(stored: StoredStudies, claims: list[Judgement], drawn: list[_RenderedFigure], missing: list[str]) -> str:
    return render(
        "idleband.paper",
        "report.html",
        version=version("idleband"),
        size=stored.size,
        command=_command(stored.size),
        tuning_seed=stored.size.tuning_seed,
        papers_replications=PAPERS_REPLICATIONS,
        missing=missing,
        parts=PARTS,
        run=_what_was_run(stored),
        claims=CLAIMS,
        columns=COLUMNS,
        no_effect=NO_EFFECT,
        summary=summary(claims),
        short=in_short(claims),
        map_in_short=map_in_short(claims),
        judgements=claims,
        marks=MARKS,
        shown=drawn,
        readings=READINGS,
        map_points=len(MAP),
        clear=CLEAR,
        scenarios=SCENARIOS,
        presets=PRESETS,
        means={name: scenario(name).table_means for name in SCENARIOS},
        example=WorkedExample(tuple(worked_example())),
        choices=_choices(stored),
        grid=GRID,
        gamma_grid=GAMMA_GRID,
    )


def _what_was_run(stored: StoredStudies) -> dict[str, Any]:
    """Return counts, time and machine from the manifests of the studies."""
    manifests = stored.manifests
    used = stored.used.values()
    results = [result for one in used for result in one.study.results]
    reported = [one for one in used if one.planned.experiment.seed == stored.size.seed]
    replications = {
        kind: {r.replications for one in reported if one.planned.kind == kind for r in one.study.results}
        for kind in COST
    }
    return {
        "studies": len(used),
        "runs": sum(result.replications for result in results),
        "slots": sum(result.replications * result.horizon for result in results),
        "minutes": _seconds(stored) / 60,
        "machines": sorted({f"{m['machine']['processor']}, {m['machine']['cores']} cores" for m in manifests}),
        "versions": manifests[0]["versions"],
        "mixed": len({json.dumps([m["versions"], m["sources"]]) for m in manifests}) > 1,
        "replications": {
            kind: " to ".join(map(str, sorted({min(n), max(n)}))) for kind, n in replications.items() if n
        },
    }


def _seconds(stored: StoredStudies) -> float:
    """Return the processor time of all studies."""
    return sum(float(manifest["seconds"]) for manifest in stored.manifests)


def _command(size: Size) -> str:
    """Return the command that runs a reproduction of this size."""
    words, base = ["idleband reproduce"], replace(Size(), seed=size.seed)
    if size.horizon == QUICK.horizon:
        words, base = [*words, "--quick"], replace(QUICK, seed=size.seed)
    if size != base:
        words.append(f"--replications {size.replications}")
    return " ".join(words + [f"--seed {size.seed}"] * (size.seed != 0))


def _choices(stored: StoredStudies) -> list[tuple[Reading, list[TunedParameters | None]]]:
    """Return the tuned parameters, one row per reading."""
    return [
        (reading, [stored.choices.get((reading.key, preset)) for preset in SCENARIOS])
        for reading in dict.fromkeys((*READINGS, *MAP))
        if any((reading.key, preset) in stored.choices for preset in SCENARIOS)
    ]
