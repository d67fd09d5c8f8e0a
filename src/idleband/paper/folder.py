"""The folder of a reproduction and its settings.

    DIR/reproduction.toml    size of the reproduction: horizon, replications, seed
    DIR/studies/NAME/        one stored study for each planned study (docs/how-to/read-results.md)
    DIR/report.html          the report; figures/ and claims.csv contain what it shows

Claims, figures and report are made from the stored studies only.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from idleband import validation
from idleband.durable import write_durably
from idleband.errors import InputError
from idleband.experiments.store import check_place
from idleband.paper.plan import TUNING_OFFSET, Size
from idleband.scenario.build import read_toml
from idleband.simulation.simulate import MAX_REPLICATIONS, MAX_SEED, MAX_SLOTS

SCHEMA = 1
SETTINGS = "reproduction.toml"
STUDIES = "studies"


def claim_folder(out: Path, size: Size) -> None:
    """Write the settings of a reproduction into its folder; refuse a folder that contains another reproduction."""
    for place in (out, out / STUDIES):
        check_place(place)
    if (out / SETTINGS).exists():
        found = read_settings(out)
        for what in ("horizon", "seed"):
            if getattr(found, what) != getattr(size, what):
                raise InputError(
                    f"{out}: holds another reproduction ({what} {getattr(found, what)}, not {getattr(size, what)});"
                    " choose another folder with --out"
                )
    write_durably(out / SETTINGS, tomli_w.dumps({"schema": SCHEMA, **asdict(size)}).encode())


def read_settings(folder: Path) -> Size:
    """Return the size of the reproduction in a folder."""
    file = folder / SETTINGS
    if not file.exists():
        raise InputError(f"{folder}: holds no reproduction ({SETTINGS} is missing); `idleband reproduce` makes one")
    data = read_toml(file, "it should contain the settings of a reproduction")
    validation.check_keys(data, ("schema", *asdict(Size())), str(file))
    validation.whole(data.get("schema"), f"{file}: schema", 1, SCHEMA)
    return check_size(**{key: data.get(key) for key in asdict(Size())}, where=f"{file}: ")


def check_size(where: str = "", **values: Any) -> Size:
    """Return a validated size. Intervals need at least two replications."""
    highest = {"horizon": MAX_SLOTS, "seed": MAX_SEED - TUNING_OFFSET}
    lowest = {"horizon": 10, "seed": 0, "tuning": 1}
    return Size(
        **{
            key: validation.whole(value, where + key, lowest.get(key, 2), highest.get(key, MAX_REPLICATIONS))
            for key, value in values.items()
        }
    )
