"""Presets: the four scenarios of the paper (tables I and II), which are those of Tekin and Liu (2012)."""

from collections.abc import Mapping
from typing import NamedTuple

CHANNEL_NAMES = tuple(f"ch{k}" for k in range(1, 11))  # the numbering of the paper


class Preset(NamedTuple):
    p01: tuple[float, ...]  # (10,) probability that a bad channel becomes good from one slot to the next
    p10: tuple[float, ...]  # (10,) probability that a good channel becomes bad
    printed_means: tuple[float, ...]  # (10,) table II as printed (rounded up or down)
    note: str
    channel_names: tuple[str, ...] = CHANNEL_NAMES


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
        "independent from slot to slot; ch1 and ch2 have equal means",
    ),
    "S3": Preset(
        (0.01, 0.1, 0.02, 0.3, 0.04, 0.5, 0.06, 0.7, 0.08, 0.9),
        (0.09, 0.9, 0.08, 0.7, 0.06, 0.5, 0.04, 0.3, 0.02, 0.1),
        (0.19, 0.19, 0.28, 0.37, 0.46, 0.55, 0.64, 0.73, 0.82, 0.91),
        "ch1, ch3, ..., ch9 slow, the others independent; ch1 and ch2 equal in mean",
    ),
    "S4": Preset(
        (0.02, 0.04, 0.04, 0.5, 0.06, 0.05, 0.7, 0.8, 0.9, 0.9),
        (0.03, 0.03, 0.04, 0.4, 0.05, 0.06, 0.6, 0.7, 0.8, 0.9),
        (0.46, 0.614, 0.55, 0.6, 0.591, 0.509, 0.585, 0.58, 0.577, 0.55),
        "close means; ch7 to ch10 negatively correlated; ch3 and ch10 equal in mean",
    ),
}
