"""Tables I and II of the paper, as data. They are the four scenarios of Tekin and Liu (2012)."""

from collections.abc import Mapping
from typing import NamedTuple


class Preset(NamedTuple):
    p01: tuple[float, ...]  # (10,) chance per slot that a bad channel turns good
    p10: tuple[float, ...]  # (10,) chance per slot that a good channel turns bad
    printed_means: tuple[float, ...]  # (10,) table II, as printed (rounded, either way)
    note: str


PRESETS: Mapping[str, Preset] = {
    "S1": Preset(
        (0.01, 0.01, 0.02, 0.02, 0.03, 0.03, 0.04, 0.04, 0.05, 0.05),
        (0.08, 0.07, 0.08, 0.07, 0.08, 0.07, 0.02, 0.01, 0.02, 0.01),
        (0.2, 0.21, 0.28, 0.3, 0.35, 0.37, 0.7, 0.82, 0.74, 0.85),
        "slow channels, strongly correlated from slot to slot",
    ),
    "S2": Preset(
        (0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        (0.9, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
        (0.19, 0.19, 0.28, 0.37, 0.46, 0.55, 0.64, 0.73, 0.82, 0.91),
        "independent from slot to slot; channels 1 and 2 tie",
    ),
    "S3": Preset(
        (0.01, 0.1, 0.02, 0.3, 0.04, 0.5, 0.06, 0.7, 0.08, 0.9),
        (0.09, 0.9, 0.08, 0.7, 0.06, 0.5, 0.04, 0.3, 0.02, 0.1),
        (0.19, 0.19, 0.28, 0.37, 0.46, 0.55, 0.64, 0.73, 0.82, 0.91),
        "odd channels slow, even channels independent; channels 1 and 2 tie",
    ),
    "S4": Preset(
        (0.02, 0.04, 0.04, 0.5, 0.06, 0.05, 0.7, 0.8, 0.9, 0.9),
        (0.03, 0.03, 0.04, 0.4, 0.05, 0.06, 0.6, 0.7, 0.8, 0.9),
        (0.46, 0.614, 0.55, 0.6, 0.591, 0.509, 0.585, 0.58, 0.577, 0.55),
        "close means; channels 7 to 10 negatively correlated; channels 3 and 10 tie",
    ),
}
