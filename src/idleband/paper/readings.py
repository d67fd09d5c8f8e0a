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
# MP-UCB and RCA-M were published. The grid of gamma leaves out 100 and 1000, which cost time and with which MP-NUCB
# earned least in every reading that ranks in every slot.
BASELINES = ("mp-random", "mp-ucb", "mp-klucb", "rca-m")
TUNED_BASELINES = ("mp-ucb", "rca-m")
TUNED, TEXTBOOK = "tuned", "textbook"
GRID = (0.1, 0.5, 1.0, 10.0, 100.0, 1000.0)  # section V-A, of beta
GAMMA_GRID = GRID[:4]

LINEAR, NEURAL = "MP-LUCB", "MP-NUCB"  # roles of the two configured policies of a reading
PROPOSED = (LINEAR, NEURAL)


@dataclass(frozen=True)
class ScenarioSettings:
    """Changes of a preset: perturbation model, P(n < 1), reward, sensing and number of users."""

    model: str = "linear"
    clear: float = CLEAR
    sensing: str = "played"
    users: int = USERS
    reward: str = "threshold"
    per_channel: bool = False  # whether each channel has a theta of its own
    noise: float = 0.0  # standard deviation of the perturbation given the context

    def scenario(self, preset: str) -> Scenario:
        """Return the preset with these settings."""
        table: dict[str, Any] = {"kind": self.model}
        if self.model != "none":
            table["clear"] = self.clear
        if self.per_channel:
            table["per_channel"] = True
        if self.noise:
            table["noise"] = self.noise
        return scenario(preset, perturbation=table, reward=self.reward, sensing=self.sensing, users=self.users)


@dataclass(frozen=True)
class Reading:
    """One reading of the paper: scenario settings and two configured policies."""

    key: str
    title: str
    knows: str  # what the two policies know and when they rank, as a sentence without its subject
    linear: ConfiguredPolicy  # beta is tuned
    neural: ConfiguredPolicy  # gamma is tuned
    settings: ScenarioSettings = ScenarioSettings()
    paths: str = ""  # key of another reading whose baselines run on the same sample paths
    tuning: str = ""  # key of another reading in which the L of its baselines is tuned


# MP-NUCB keeps the diagonal of its matrix, as the code of NeuralUCB does (uclaml/NeuralUCB, learner_diag.py).
# The full 160 x 160 matrix takes three to five times as long, and 20 replications of both differ by less than 1% in
# reward (docs/explanation/neural.md): twelve replications with the diagonal say more about a claim than three without.
_DIAGONAL = {"covariance": "diagonal"}

# Standard deviations of the perturbation given the context. The paper has E[n | x] = theta . x.
NOISE = (0.1, 0.2)

MAIN = Reading(
    "slot-played",
    "ranked every slot, played states",
    "rank in every slot, as in the printed Algorithm 1, and observe the states of the channels they play only",
    policy("mp-lucb"),
    policy("mp-nucb", **_DIAGONAL),
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


def _variant(key: str, title: str, difference: str, settings: ScenarioSettings, tuning: str = "") -> Reading:
    """Return the main reading in another world.

    Under the threshold reward a policy without contexts depends on the perturbation only by P(n < 1), because contexts
    are independent. (A bad channel pays high where n < 0. Only noise makes that possible, with a probability of at most
    0.4%, and 1% in the map.) Worlds with the same P(n < 1) are then the same to the baselines, and their L is tuned in
    one of them.
    """
    return replace(MAIN, key=key, title=title, knows=f"{MAIN.knows}; {difference}", settings=settings, tuning=tuning)


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
    _variant(
        "additive",
        "additive reward of equations 1 and 2",
        "the reward is h(s) - n, as in equations 1 and 2, instead of that of section V",
        ScenarioSettings(reward="additive"),
    ),
    _variant(
        "per-channel",
        "one theta per channel",
        "each channel has its own theta, as the theta with an index in the regret and in equation 4 has it",
        ScenarioSettings(per_channel=True),
        MAIN.key,
    ),
    *(
        _variant(
            f"noise-{noise:g}",
            f"noisy perturbation, sigma = {noise:g}",
            f"the perturbation has a standard deviation of {noise:g} around theta . x, so that the context does not"
            " determine it",
            ScenarioSettings(noise=noise),
            MAIN.key,
        )
        for noise in NOISE
    ),
    _variant(
        "quadratic",
        "quadratic perturbation model",
        "the perturbation is a quadratic function of the context, which a linear model cannot represent",
        ScenarioSettings(model="quadratic"),
        MAIN.key,
    ),
    _variant(
        "cosine",
        "cosine perturbation model",
        "the perturbation is a cosine of the context, which a linear model cannot represent",
        ScenarioSettings(model="cosine"),
        MAIN.key,
    ),
    _variant("none", "no perturbation", "contexts carry no information", ScenarioSettings(model="none")),
)

# The map: the main reading for other values of P(n < 1) and of the noise, for MP-LUCB only.
MAP_CLEAR = (0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
MAP_CLEAR_WITH_NOISE = (0.5, 0.7, 0.9)


def map_reading(clear: float, noise: float = 0.0) -> Reading:
    """Return the main reading with another P(n < 1) and another noise."""
    settings = ScenarioSettings(clear=clear, noise=noise)
    judged = (one for one in READINGS if (one.linear, one.settings) == (MAIN.linear, settings))
    words = f", P(n<1) = {clear:g}" + f", sigma = {noise:g}" * bool(noise)
    key = f"{MAIN.key}-{clear:g}" + f"-noise-{noise:g}" * bool(noise)
    return next(judged, None) or replace(
        MAIN, key=key, title=MAIN.title + words, settings=settings, tuning=map_reading(clear).key if noise else ""
    )


MAP = (
    *(map_reading(clear) for clear in MAP_CLEAR),
    *(map_reading(clear, noise) for noise in NOISE for clear in MAP_CLEAR_WITH_NOISE),
)


def find(key: str) -> Reading:
    """Return a reading by its key."""
    return next(reading for reading in (*READINGS, *MAP) if reading.key == key)


def baselines_of(reading: Reading) -> Reading:
    """Return the reading whose studies contain the baselines of a reading."""
    return find(reading.paths) if reading.paths else reading


def tuned_in(reading: Reading) -> Reading:
    """Return the reading in which the L of the baselines of a reading is tuned."""
    owner = baselines_of(reading)
    return find(owner.tuning) if owner.tuning else owner
