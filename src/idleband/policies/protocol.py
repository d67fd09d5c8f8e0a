"""The policy protocol: the functions that a policy consists of and the records that they receive.

A policy is three functions on explicit state. Built-in policies and users' policies have the same form:

    init(setup) -> State                              called once, in plain Python: allocate the state
    select(setup, state, slot, picks) -> int          called in every slot: write the chosen channels into `picks`
                                                      and return how many there are
    update(setup, state, slot, feedback) -> None      called for each chosen channel: learn from its feedback

The `init` function of an oracle takes a second argument, `init(setup, truth)`, with the true parameters.

Optional functions:

    predict(setup, state, contexts, out) -> None      write the predicted perturbation of every channel into `out`
    explain(setup, state, slot, terms) -> None        right after `select`: write estimate, width and belief of every
                                                      channel into the columns of `terms`
    terms(setup) -> (str, str)                        plain Python: what the estimate and the width are
    propensities(setup, state, slot, out) -> None     right after `select`: write the probability, before the random
                                                      draws of this slot, of selecting each channel into `out`

A decentralised policy has the same form. Each user is an instance of it with a state and a random stream of its own,
for whom M is 1: `select` writes one channel, or returns 0 to stay silent. Slots count from the arrival of the user.
Where there are control minislots, two more functions may be given; without them a user sends nothing:

    signal(setup, state, slot, minislots) -> None     after all updates of a slot: set elements of `minislots` to 1 to
                                                      send in them, at most `control_bits`; the others stay 0
    hear(setup, state, slot, minislots) -> None       then: element i is 1 if any user has sent in minislot i

`Params` and `State` are NamedTuples. Hyper-parameters are fields of `Params` and are read as `setup.params.NAME`; they
are not closures, because each closure would have to be compiled again. All functions but `init` and `terms` run inside
compiled loops and allocate nothing: `slot` provides working arrays. Bounds of parameters are given in their
annotations and are checked before anything runs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from idleband.arrays import Flags, Floats, Ints
from idleband.errors import InputError, unknown
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng
from idleband.policies.parameters import RESERVED, AtLeast, OneOf, Parameter, public_name

MAX_BYTES = 8 * 2**30  # of the state of a policy in one replication


class Setup(NamedTuple):
    """What a policy knows before the first slot: the size of the problem, the rewards and its own parameters."""

    K: int  # number of channels
    M: int  # number of channels to select in a slot
    d: int  # dimension of a context
    low: float  # rewards lie in [low, high]
    high: float
    span: float  # max(1, high - low): scale of confidence widths, 1 in the paper's scenarios
    h_span: float  # the same for the state reward h
    h: Floats  # (K, S) reward of each state without perturbation
    states: Ints  # (K,) number of states of each channel
    good: Flags  # (K, S) whether a state is good: no primary user is present
    threshold: bool  # whether the reward is the threshold reward; otherwise it is additive
    measured: bool  # whether feedback.perturbation is measured; otherwise it is nan
    missed: Floats  # (K,) probability that a busy channel is observed as idle (missed detection)
    false_alarm: Floats  # (K,) probability that an idle channel is observed as busy
    switching_cost: float  # reward lost when a channel is played that was not played in the slot before
    users: int  # number of users of the band; 0 if the policy of a single user does not know it
    horizon: int  # number of slots; 0 if the policy does not know it
    control_bits: int  # control minislots per user and slot; only without a base station
    observes: int  # SENSING, COLLISIONS or REWARDS, as in scenario.uncoordinated; SENSING with a base station
    params: Any  # the parameters of the policy, a NamedTuple


class Truth(NamedTuple):
    """The true parameters of a scenario, given to oracles only."""

    P: Floats  # (K, S, S) transition matrices; rows of states that a channel does not have are zero
    stationary: Floats  # (K, S) stationary distributions
    mean: Floats  # (K,) mean rewards, perturbation included
    pay: Floats  # (K, L, S) reward in each state at L levels of the perturbation, of its mean f(x) if there is noise
    level_probability: Floats  # (K, L) probability of each level
    level_end: Floats  # (K, L) upper end of each level, exclusive
    noise: float  # standard deviation of the noise


class Slot(NamedTuple):
    """What a policy observes before it selects channels, its random stream, and working arrays."""

    t: int  # slot number, from 1
    contexts: Floats  # (K, d)
    available: Flags  # (K,) channels that may be selected
    sensed: Ints  # (K,) sensed states; -1 where not sensed (everywhere unless sensing = "all", or for the genie)
    perturbations: Floats  # (K,) for oracles f(x), the perturbation without noise; for the genie n; else nan
    indices: Floats  # (K,) working array for the index of each channel
    scratch: Floats  # (2K,) working array, as `top_m` needs it
    rng: Rng  # random stream of the policy, for the functions in `idleband.random`


class Feedback(NamedTuple):
    """What one selected channel returned in a slot."""

    channel: int  # from 0
    state: int  # observed state of the channel; -1 if a user without a base station does not observe it
    reward: float
    perturbation: float  # measured perturbation, nan where it is not measured
    collision: int  # 1 if other users played the channel, 0 if not, -1 if that is not observed; 0 with a base station


# Columns of `terms`, one row per channel; nan where a policy has no such value. The belief is the probability that no
# primary user is present.
ESTIMATE, WIDTH, BELIEF = range(3)


@jit
def explain_mean(total: Floats, plays: Floats, slot: Slot, k: int, terms: Floats) -> None:
    """Split the index of channel k into its mean and the width added to it."""
    if plays[k] > 0.0:
        terms[k, ESTIMATE] = total[k] / plays[k]
        terms[k, WIDTH] = slot.indices[k] - terms[k, ESTIMATE]


@jit
def to_unit(setup: Setup, r: float) -> float:
    """Rescale a reward from [low, high] to [0, 1], clipped."""
    width = setup.high - setup.low
    return min(1.0, max(0.0, (r - setup.low) / width)) if width > 0.0 else 0.0


CONTEXTS_SEEN, PARAMETERS, STATES_SEEN = "contexts", "parameters", "all states"
# Of policies of single users. What they observe and send must be allowed by the scenario.
USERS_KNOWN, HORIZON_KNOWN = "number of users", "horizon"
OWN_STATES_SEEN, COLLISIONS_SEEN, CONTROL_BITS = "states of own channels", "collisions", "control bits"
ALL_AVAILABLE = "slots in which all channels are available"
KNOWLEDGE = (
    CONTEXTS_SEEN, PARAMETERS, STATES_SEEN, USERS_KNOWN, HORIZON_KNOWN, OWN_STATES_SEEN, COLLISIONS_SEEN, CONTROL_BITS,
    ALL_AVAILABLE,
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Policy:
    """Definition of a policy: name, functions, parameters with defaults, and reference."""

    name: str
    description: str
    reference: str
    params: type  # a NamedTuple class
    init: Callable[..., Any]
    select: Callable[..., int]
    update: Callable[..., None]
    predict: Callable[..., None] | None = None
    explain: Callable[..., None] | None = None
    terms: Callable[..., tuple[str, str]] | None = None
    propensities: Callable[..., None] | None = None  # only of policies that randomise and know the probabilities
    check: Callable[..., None] | None = None  # (setup): raises InputError where `init` would need too much memory
    knows: frozenset[str] = frozenset()  # of KNOWLEDGE, in addition to the feedback of the channels it played
    fixed: frozenset[str] = frozenset()  # parameters that cannot be set because they define the policy
    preset: dict[str, Any] = field(default_factory=dict)  # defaults that differ from those of `params`
    decentralised: bool = False  # whether it is the policy of a single user without a base station
    signal: Callable[..., None] | None = None
    hear: Callable[..., None] | None = None
    source: str | None = None  # hash of the user's file; None for built-in policies
    compiled: str = field(default="auto", compare=False)  # "require": refuse the policy if it does not compile
    cacheable: bool = True  # whether machine code may be cached; false for classes defined interactively

    def __repr__(self) -> str:
        return f"Policy({self.name}: {self.description})"

    @property
    def key(self) -> tuple[str, str | None]:
        """Identity of the policy; distinguishes users' policies with the same name by their source."""
        return self.name, self.source

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters, by name, read from the annotations of `params`."""
        found = {}
        hints = get_type_hints(self.params, include_extras=True)
        defaults = {public_name(name): default for name, default in self.params._field_defaults.items()}  # type: ignore[attr-defined]
        for field_name, hint in hints.items():
            name = public_name(field_name)
            kind, bound, meaning = hint, None, ""
            if get_origin(hint) is Annotated:
                kind, *notes = get_args(hint)
                bound = next((note for note in notes if isinstance(note, AtLeast | OneOf)), None)
                meaning = next((note for note in notes if isinstance(note, str)), "")
            if kind not in (float, int, bool):
                raise InputError(f"policy '{self.name}': parameter {name} must be a float, an int or a bool")
            if name in RESERVED:
                raise InputError(f"policy '{self.name}': a parameter cannot be called {name}")
            if name not in defaults:
                raise InputError(f"policy '{self.name}': parameter {name} needs a default")
            default = self.preset.get(name, defaults[name])
            if isinstance(bound, OneOf) and not isinstance(default, str):
                default = bound.words[default]
            found[name] = Parameter(name, kind, default, bound, meaning)
        return found

    def values(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the value of every parameter as users write it: the given values, checked, over the defaults."""
        parameters = self.parameters
        given = {public_name(name): value for name, value in given.items()}
        for name in given:
            if name not in parameters:
                raise unknown(f"parameter of policy {self.name}", name, parameters)
        try:
            values = {name: p.public(given.get(name, p.default)) for name, p in parameters.items()}
        except InputError as error:
            raise InputError(f"policy {self.name}: {error}") from None
        for name in self.fixed:
            if values[name] != parameters[name].default:
                raise InputError(
                    f"policy {self.name}: {name} = {values[name]}: is {parameters[name].default} in this policy"
                )
        return values

    def compiled_params(self, values: dict[str, Any]) -> Any:
        """Return the `Params` that kernels read."""
        kinds = self.parameters
        # By position, because the name of a field may end with an underscore that its parameter does not have.
        return self.params(*(p.kind(p.internal(values[name])) for name, p in kinds.items()))
