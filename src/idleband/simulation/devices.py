"""On what simulations run: the processor cores, or a GPU with numbers of 64 or 32 bits."""

from typing import Literal, NamedTuple

from idleband import validation
from idleband.errors import InputError
from idleband.scenario.scenario import Scenario

DEVICES = ("cpu", "cuda")
PRECISIONS = ("float64", "float32")

DeviceName = Literal["cpu", "cuda"]
Precision = Literal["float64", "float32"]


class Device(NamedTuple):
    name: str = "cpu"
    precision: str = "float64"

    def __str__(self) -> str:
        return self.name if self.precision == PRECISIONS[0] else f"{self.name} with {self.precision}"

    def to_dict(self) -> dict[str, str]:
        """Return the settings of an experiment file that differ from their defaults."""
        given = {"device": self.name, "precision": self.precision}
        return {key: value for key, value in given.items() if value != {"device": "cpu", "precision": "float64"}[key]}


CPU = Device()
MAX_NARROW_SLOTS = 2**24  # up to which numbers of 32 bits count every slot


def read_device(name: str | None, precision: str | None, where: str = "") -> Device:
    """Return a device after validation; None stands for the default. Names of arguments begin with `where`."""
    if name is None and precision is None:
        return CPU
    found = Device(
        validation.choice(name or "cpu", f"{where}device", DEVICES),
        validation.choice(precision or PRECISIONS[0], f"{where}precision", PRECISIONS),
    )
    if found.name == "cpu" and found.precision != PRECISIONS[0]:
        raise InputError(f"{where}precision = {found.precision}: only used with {where}device = cuda")
    return found


def check_device(device: Device, scenario: Scenario, horizon: int) -> None:
    """Raise InputError unless a scenario can be simulated on a device over so many slots."""
    if device.name == "cuda" and scenario.uncoordinated is not None:
        raise InputError("device = cuda: users without a base station (scenario.users) are simulated on the CPU only")
    if device.precision != PRECISIONS[0] and horizon > MAX_NARROW_SLOTS:
        raise InputError(
            f"experiment.horizon = {horizon}: must be at most {MAX_NARROW_SLOTS} with precision = {device.precision},"
            " where counts end"
        )
