"""One table of policies, and the decorator that adds a user's own."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from idleband import user_code
from idleband.errors import InputError, check_name, unknown
from idleband.policies import (
    belief,
    belief_lucb,
    belief_nucb,
    discounted,
    episodic_thompson,
    klucb,
    learned_whittle,
    lucb,
    nucb,
    oracle,
    random,
    regenerative,
    sliding_window,
    thompson,
    ucb,
)
from idleband.policies.protocol import CONTEXTS_SEEN, PARAMETERS, STATES_SEEN, Policy

C = TypeVar("C")

_LI = "Li, Li, Lu, Liu and Jin 2026"
_GARIVIER = "Garivier and Moulines, ALT 2011"
_LIU = "Liu and Zhao, IEEE-IT 2010"
_OURS = "this package"

# What a policy may know, beside the state and the reward of each channel it played.
_NO_MORE = frozenset[str]()
_CONTEXTS = frozenset([CONTEXTS_SEEN])
_PARAMETERS = frozenset([PARAMETERS])
_BOTH = _CONTEXTS | _PARAMETERS
_EVERYTHING = frozenset([STATES_SEEN]) | _BOTH


def _built_in(name: str, module: Any, knows: frozenset[str], description: str, reference: str, **preset: Any) -> Policy:
    return Policy(
        name, description, reference, module.Params, module.init, module.select, module.update,
        getattr(module, "predict", None), getattr(module, "explain", None), getattr(module, "terms", None),
        getattr(module, "check", None), knows, getattr(module, "FIXED", frozenset()), preset,
    )  # fmt: skip


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        # The paper's baselines and its own.
        _built_in("mp-random", random, _NO_MORE, "M channels at random", _LI),
        _built_in("mp-ucb", ucb, _NO_MORE, "mean reward + sqrt(L ln t / T_k)", "Chen, Wang and Yuan, ICML 2013"),
        _built_in(
            "mp-klucb", klucb, _NO_MORE, "Kullback-Leibler upper confidence bound", "Garivier and Cappe, COLT 2011",
        ),
        _built_in(
            "mp-ts", thompson, _NO_MORE, "Thompson sampling, Beta(1,1) prior", "Komiyama, Honda, Nakagawa, ICML 2015",
        ),
        _built_in(
            "rca-m", regenerative, _NO_MORE, "regenerative cycles, M blocks side by side",
            "Tekin and Liu, IEEE-IT 2012",
        ),
        _built_in("mp-lucb", lucb, _CONTEXTS, "linear model of the perturbation, ranked every slot", _LI),
        _built_in(
            "mp-lucb-rca", lucb, _CONTEXTS, "the same in RCA's frame, pessimistic width", _LI,
            frame="rca", base="index", width="pessimistic", explore_first=True, L=1.0,
        ),
        _built_in(
            "mp-lucb-printed", lucb, _CONTEXTS, "Algorithm 1 to the letter: cannot learn", _LI,
            target="prediction", base="none", estimate="add", replace="reward",
        ),
        _built_in("mp-nucb", nucb, _CONTEXTS, "neural model of the perturbation, ranked every slot", _LI),
        _built_in(
            "mp-nucb-rca", nucb, _CONTEXTS, "the same in RCA's frame, pessimistic width", _LI,
            frame="rca", base="index", width="pessimistic", explore_first=True, base_L=1.0,
        ),
        _built_in(
            "mp-nucb-printed", nucb, _CONTEXTS, "index, replacement and network as printed; learns what is measured",
            _LI, dropout=0.1, centre=False, constant=False, base="none", estimate="add", replace="reward",
        ),
        # Peers: what else the field has for channels that change, and for contexts.
        _built_in("mp-swucb", sliding_window, _NO_MORE, "mp-ucb over the last slots only", _GARIVIER),
        _built_in("mp-ducb", discounted, _NO_MORE, "mp-ucb with older slots counting less", _GARIVIER),
        _built_in(
            "mp-whittle", learned_whittle, _NO_MORE, "Whittle's index, chains learned from neighbouring slots",
            "Akbarzadeh and Mahajan, IEEE-TCNS 2024",
        ),
        _built_in(
            "mp-ts-episodes", episodic_thompson, _NO_MORE, "Thompson sampling of chains in episodes, on a grid",
            "Jung, Abeille and Tewari 2019",
        ),
        _built_in(
            "c2ucb", lucb, _CONTEXTS, "one linear model of the reward: tells channels apart by their contexts alone",
            "Qin, Chen and Zhu, SDM 2014",
            target="reward", shared=True, base="none", estimate="add", replace="off",
        ),
        # With nucb's gamma of 1 both earn less in S1 to S4; between 0.03 and 0.3 it makes little difference.
        _built_in(
            "neural-ucb", nucb, _CONTEXTS, "neural model of the reward, and a bound on it",
            "Zhou, Li and Gu, ICML 2020",
            gamma=0.1, target="reward", base="none", estimate="add", replace="off", covariance="block",
        ),
        _built_in(
            "neural-ts", nucb, _CONTEXTS, "neural model of the reward, and a draw around it",
            "Zhang, Zhou, Li and Gu, ICLR 2021",
            gamma=0.1, target="reward", base="none", estimate="add", replace="off", covariance="block", width="sampled",
        ),
        # Beyond the paper.
        _built_in("mp-belief", belief, _NO_MORE, "beliefs, carried forward by chains learned on the way", _OURS),
        _built_in("mp-belief-lucb", belief_lucb, _CONTEXTS, "beliefs, and a linear model of the perturbation", _OURS),
        _built_in("mp-belief-nucb", belief_nucb, _CONTEXTS, "beliefs, and a neural model of the perturbation", _OURS),
        # Who knows more than anybody does.
        _built_in("oracle-static", oracle, _PARAMETERS, "the best fixed channels", _LI, value="static"),
        _built_in(
            "oracle-contextual", oracle, _BOTH, "the best channels given the contexts", _LI, value="contextual",
        ),
        _built_in(
            "oracle-belief", oracle, _BOTH, "the best given the contexts and what it saw, without look-ahead",
            "Ahmad, Liu, Javidi, Zhao and Krishnamachari, IEEE-IT 2009",
        ),
        _built_in("oracle-whittle", oracle, _BOTH, "the same, by Whittle's index", _LIU, value="whittle"),
        _built_in(
            "whittle", oracle, _PARAMETERS, "Whittle's index without contexts", _LIU, value="whittle", contexts=False,
        ),
        _built_in("genie", oracle, _EVERYTHING, "the best in hindsight", _LI, value="realised"),
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ConfiguredPolicy:
    """A policy with all its parameters: what one line of a comparison is."""

    policy: Policy
    values: dict[str, Any]  # every parameter, as users write them

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfiguredPolicy) and (self.policy, self.values) == (other.policy, other.values)

    def __hash__(self) -> int:
        return hash((self.policy.name, self.policy.source, *self.values.values()))

    @property
    def params(self) -> Any:
        """The parameters as the compiled functions read them."""
        return self.policy.compiled_params(self.values)

    @property
    def label(self) -> str:
        """The name, and the parameters that differ from the defaults.

        >>> policy("mp-lucb", beta=0.5).label
        'mp-lucb beta=0.5'
        """
        changed = [
            f"{name}={_text(value)}"
            for name, value in self.values.items()
            if value != self.policy.parameters[name].default
        ]
        return " ".join([self.policy.name, *changed])


def _text(value: Any) -> str:
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def policy(source: "str | Policy | ConfiguredPolicy | type", /, **parameters: Any) -> ConfiguredPolicy:
    """A policy by its name, `file.py:name`, or the decorated class itself, with parameters over the defaults.

    >>> policy("mp-lucb", beta=0.5).values["frame"]
    'slot'
    """
    if isinstance(source, ConfiguredPolicy):
        return ConfiguredPolicy(source.policy, source.policy.values({**source.values, **parameters}))
    found = source if isinstance(source, Policy) else _find(source)
    return ConfiguredPolicy(found, found.values(parameters))


def _find(source: Any) -> Policy:
    if isinstance(source, type):
        registered: Policy | None = source.__dict__.get("_idleband_policy")
        if registered is None:
            raise InputError(f"policy {source.__name__}: put @idleband.register above the class")
        return registered
    if not isinstance(source, str):
        raise InputError(f"policy = {source!r}: must be a name, file.py:name, or a class under @idleband.register")
    if ".py:" in source:
        return cast(Policy, user_code.find(source, "policy", "_idleband_policy", "register"))
    if source.endswith(".py"):
        raise InputError(f"policy {source}: give the name of a policy in it, too: {source}:NAME")
    if source not in POLICIES:
        name, colon, parameters = source.partition(":")
        if colon and name in POLICIES:
            raise InputError(f"policy = {source!r}: give its parameters as keywords: {name!r}, {parameters}")
        raise unknown("policy", source, POLICIES)
    return POLICIES[source]


# --- a user's own ----------------------------------------------------------------------------------------------------


class _NoParams(NamedTuple):
    pass


ARGUMENTS = {
    "init": "setup",
    "select": "setup, state, slot, picks",
    "update": "setup, state, slot, feedback",
    "predict": "setup, state, contexts, out",
}
OPTIONAL = ("predict",)


def register(cls: type[C] | None = None, /, *, name: str | None = None) -> Any:
    """Class decorator: make a policy of a class that holds `init`, `select`, `update` and optionally `Params`.

    The class is only a bundle: its functions take no self. Its name, or `name`, becomes the policy's name, and the
    first line of its docstring the description. It runs compiled if it can be compiled and interpreted if it cannot.

    >>> @register(name="first-channels")
    ... class FirstChannels:
    ...     "The first M channels, always."
    ...     def init(setup):
    ...         return ()
    ...     def select(setup, state, slot, picks):
    ...         for m in range(setup.M):
    ...             picks[m] = m
    ...         return setup.M
    ...     def update(setup, state, slot, feedback):
    ...         pass
    >>> policy("first-channels").label
    'first-channels'
    """

    def add(cls: type[C]) -> type[C]:
        public = check_name(name or cls.__name__, "policy")
        functions = user_code.functions_of(cls, f"policy {public}", ARGUMENTS, OPTIONAL)
        if public in POLICIES and POLICIES[public].source is None:
            raise InputError(f"policy {public}: this name is taken by a policy of the package")
        source, cacheable = user_code.source_of(cls, f"policy {public}")
        made = Policy(
            public, user_code.description_of(cls, "a policy of your own"), cls.__module__, vars(cls).get("Params", _NoParams),
            functions["init"], functions["select"], functions["update"], functions.get("predict"),
            source=source, cacheable=cacheable,
        )  # fmt: skip
        made.parameters  # noqa: B018  (an unusable Params is refused here, not at the first run)
        cls._idleband_policy = made  # type: ignore[attr-defined]
        POLICIES[public] = made
        return cls

    return add if cls is None else add(cls)
