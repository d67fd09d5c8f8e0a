"""Readings of the paper.

The text of the paper leaves open what the policies know and when they may change channels, and its algorithm cannot
learn as printed (docs/paper-map.md). A reading fixes these points: the settings of the scenario and the two policies.
Every claim is judged under every reading.
"""

from dataclasses import dataclass, replace
from typing import Any

from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.build import scenario
from idleband.scenario.presets import PRESETS
from idleband.scenario.scenario import Scenario

SCENARIOS = tuple(PRESETS)
USERS = 5  # M of the paper's experiments
CLEAR = 0.7  # P(n < 1) of the readings; the map has others

# Section V: baselines of the proposed policies. L is tuned like beta, on the same grid; "textbook" is the L with which
# MP-UCB and RCA-M were published.
BASELINES = ("mp-random", "mp-ucb", "mp-klucb", "rca-m")
TUNED_BASELINES = ("mp-ucb", "rca-m")
TUNED, TEXTBOOK = "tuned", "textbook"
GRID = (0.1, 0.5, 1.0, 10.0, 100.0, 1000.0)  # section V-A, of beta

LINEAR, NEURAL = "MP-LUCB", "MP-NUCB"  # roles of the two configured policies of a reading
PROPOSED = (LINEAR, NEURAL)


@dataclass(frozen=True)
class ScenarioSettings:
    """Changes of a preset: perturbation model, P(n < 1), sensing and number of users."""

    model: str = "linear"
    clear: float = CLEAR
    sensing: str = "played"
    users: int = USERS

    def scenario(self, preset: str) -> Scenario:
        """Return the preset with these settings."""
        model: Any = self.model if self.model == "none" else {"kind": self.model, "clear": self.clear}
        return scenario(preset, perturbation=model, sensing=self.sensing, users=self.users)


@dataclass(frozen=True)
class Reading:
    """One reading of the paper: scenario settings and two configured policies."""

    key: str
    title: str
    knows: str  # what the two policies know and when they rank, as a sentence without its subject
    linear: ConfiguredPolicy  # beta is tuned
    neural: ConfiguredPolicy  # gamma = 1, not tuned
    settings: ScenarioSettings = ScenarioSettings()
    paths: str = ""  # key of another reading whose baselines run on the same sample paths


# The main reading keeps the full 160 x 160 matrix of each network, as in the paper. The others keep its diagonal, which
# takes a third of the time and changes the reward by less than 1% (docs/explanation/neural.md).
_DIAGONAL = {"covariance": "diagonal"}

MAIN = Reading(
    "slot-played",
    "ranked every slot, played states",
    "rank in every slot, as in the printed Algorithm 1, and observe the states of the channels they play only",
    policy("mp-lucb"),
    policy("mp-nucb"),
)
SENSED = Reading(
    "rca-sensed",
    "RCA's frame, all channels sensed",
    "rank inside RCA's blocks, as in section V-A, and observe the state of every channel before they select (Algorithm"
    " 1, line 6), which no baseline does",
    policy("mp-lucb-rca"),
    policy("mp-nucb-rca", **_DIAGONAL),
    ScenarioSettings(sensing="all"),
    MAIN.key,
)
READINGS = (
    MAIN,
    SENSED,
    replace(
        SENSED,
        key="rca-played",
        title="RCA's frame, played states",
        knows="rank inside RCA's blocks, and observe the states of the channels they play only",
        settings=ScenarioSettings(),
    ),
    Reading(
        "printed-reward",
        "Algorithm 1 to the letter, margin h(s) - n",
        "rank by the highest perturbation and observe every state; a channel is replaced by the margin of line 13."
        " MP-LUCB is trained on its own prediction and learns nothing; MP-NUCB, whose regression target the paper"
        " leaves open, is trained on the measured perturbation",
        policy("mp-lucb-printed"),
        policy("mp-nucb-printed", **_DIAGONAL),
        ScenarioSettings(sensing="all"),
        MAIN.key,
    ),
    Reading(
        "printed-indicator",
        "Algorithm 1 to the letter, margin 1{s=1} - n",
        "do the same, but a channel is replaced by the margin that defines the reward in section V",
        policy("mp-lucb-printed", replace="indicator"),
        policy("mp-nucb-printed", replace="indicator", **_DIAGONAL),
        ScenarioSettings(sensing="all"),
        MAIN.key,
    ),
    *(
        replace(
            MAIN,
            key=model,
            title=title,
            knows=f"{MAIN.knows}; {difference}",
            neural=policy("mp-nucb", **_DIAGONAL),
            settings=ScenarioSettings(model=model),
        )
        for model, title, difference in (
            (
                "quadratic",
                "quadratic perturbation model",
                "the perturbation is a quadratic function of the context, which a linear model cannot represent",
            ),
            (
                "cosine",
                "cosine perturbation model",
                "the perturbation is a cosine of the context, which a linear model cannot represent",
            ),
            ("none", "no perturbation", "contexts carry no information"),
        )
    ),
)

# The map: the main reading for other values of P(n < 1), for MP-LUCB only.
MAP_CLEAR = (0.5, 0.6, 0.7, 0.8, 0.9, 0.97)


def map_reading(clear: float) -> Reading:
    """Return the main reading with another P(n < 1)."""
    if clear == CLEAR:
        return MAIN
    title = f"{MAIN.title}, P(n<1) = {clear:g}"
    return replace(MAIN, key=f"{MAIN.key}-{clear:g}", title=title, settings=ScenarioSettings(clear=clear))


MAP = tuple(map_reading(clear) for clear in MAP_CLEAR)


def find(key: str) -> Reading:
    """Return a reading by its key."""
    return next(reading for reading in (*READINGS, *MAP) if reading.key == key)
