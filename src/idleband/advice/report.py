"""The report of a recommendation: one HTML file without external resources, and its parts as files."""

import base64
import io
import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from idleband.advice.advise import Advice
from idleband.advice.text import ONE_RECORDING
from idleband.durable import write_durably
from idleband.reporting.html import render
from idleband.reporting.plots import reward_figure
from idleband.reporting.trace_figures import trace_figure
from idleband.reporting.trace_fit_figure import fit_figure
from idleband.trace.waterfall import waterfall_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESOLUTION = 110  # dots per inch


class ReportImage(NamedTuple):
    """A figure of the report."""

    name: str
    title: str
    caption: str
    png: bytes

    @property
    def uri(self) -> str:
        """The figure as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def write_report(advice: Advice, folder: Path) -> Path:
    """Write report.html, advice.json, the figures and the fitted scenario into a folder; return the report's path."""
    images = _images(advice)
    for image in images:
        write_durably(folder / f"{image.name}.png", image.png)
    if advice.fit is not None:
        advice.fit.save(folder / "scenario.toml")
    write_durably(folder / "advice.json", (json.dumps(advice.to_dict(), indent=1, allow_nan=False) + "\n").encode())
    path = folder / "report.html"
    page = render(
        "idleband.advice", "report.html", version=version("idleband"), advice=advice, images=images,
        one_recording=ONE_RECORDING,
    )  # fmt: skip
    write_durably(path, page.encode())
    return path


def _images(advice: Advice) -> list[ReportImage]:
    trace, name = advice.trace, advice.study.scenario.name
    layers = {"busy": trace.busy, "power": trace.power, "reward": trace.reward}
    known = {key: values for key, values in layers.items() if values is not None}
    image = waterfall_of([known], trace.T, trace.K)
    shown = [one for one in advice.replays if one.label == advice.recommended or not one.clearly_behind][:6]
    labels = {one.label for one in shown}
    results = [result for result in advice.study.results if result.label in labels]
    images = [
        ReportImage(
            "trace", "The recording",
            "Power or busy slots over time and channels, occupancy, dwell times beside geometric ones, and the"
            " correlation between channels.",
            _png(trace_figure(name, trace.metadata, advice.statistics, image)),
        ),
        ReportImage(
            "reward", "Reward of the best policies along the recording",
            "Reward per slot up to each slot, and the paired difference to the best policy.",
            _png(reward_figure(advice.study.scenario, results)),
        ),
    ]  # fmt: skip
    if advice.fit is not None:
        images.append(
            ReportImage(
                "fit",
                "The fitted scenario",
                "Hazards by age beside those of the models, occupancy with change points, and correlation.",
                _png(fit_figure(name, advice.fit)),
            )
        )
    return images


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=RESOLUTION, facecolor="white")
    return buffer.getvalue()
