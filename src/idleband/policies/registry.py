"""The table of policies, configured policies, and the decorator that registers a user's policy."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar, cast

from idleband import user_code, validation
from idleband.errors import InputError, check_name, shown, unknown
from idleband.policies import (
    adaptive,
    adaptive_lucb,
    belief,
    belief_lucb,
    belief_nucb,
    discounted,
    dsee,
    episodic_thompson,
    exp3_m,
    glr_klucb,
    klucb,
    learned_whittle,
    listen_before_talk,
    lucb,
    nucb,
    oracle,
    random,
    regenerative,
    restless_ucb,
    sliding_window,
    stay,
    thompson,
    ucb,
    whittle_q,
)
from idleband.policies.configured import ConfiguredPolicy as ConfiguredPolicy
from idleband.policies.configured import split_parameters
from idleband.policies.decentralised import (
    belief_beacons,
    belief_groups,
    dpe1,
    dsee_users,
    game_of_thrones,
    musical_chairs,
    rho_rand,
    selfish,
    sic_mmab,
    top_m_users,
    user_lbt,
    user_random,
)
from idleband.policies.parameters import public_name
from idleband.policies.protocol import (
    ALL_AVAILABLE,
    COLLISIONS_SEEN,
    CONTEXTS_SEEN,
    CONTROL_BITS,
    HORIZON_KNOWN,
    OWN_STATES_SEEN,
    PARAMETERS,
    STATES_SEEN,
    USERS_KNOWN,
    Policy,
)
from idleband.validation import choice

C = TypeVar("C")

_LI = "Li, Li, Lu, Liu and Jin 2026"
_GARIVIER = "Garivier and Moulines, ALT 2011"
_LIU = "Liu and Zhao, IEEE-IT 2010"
_OURS = "this package"

# What a policy may know in addition to the states and rewards of the channels that it played.
_NO_MORE = frozenset[str]()
_CONTEXTS = frozenset([CONTEXTS_SEEN])
_PARAMETERS = frozenset([PARAMETERS])
_BOTH = _CONTEXTS | _PARAMETERS
_EVERYTHING = frozenset([STATES_SEEN]) | _BOTH


def _built_in(name: str, module: Any, knows: frozenset[str], description: str, reference: str, **preset: Any) -> Policy:
    return Policy(
        name, description, reference, module.Params, module.init, module.select, module.update,
        getattr(module, "predict", None), getattr(module, "explain", None), getattr(module, "terms", None),
        getattr(module, "propensities", None), getattr(module, "check", None), knows,
        getattr(module, "FIXED", frozenset()), preset,
    )  # fmt: skip


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        # The paper's policies and baselines.
        _built_in("mp-random", random, _NO_MORE, "M channels selected uniformly at random", _LI),
        _built_in(
            "mp-ucb", ucb, _NO_MORE, "upper confidence bound: mean reward + sqrt(L ln t / T_k)",
            "Chen, Wang and Yuan, ICML 2013",
        ),
        _built_in(
            "mp-klucb", klucb, _NO_MORE, "Kullback-Leibler upper confidence bound", "Garivier and Cappe, COLT 2011",
        ),
        _built_in(
            "mp-ts", thompson, _NO_MORE, "Thompson sampling with a Beta(1, 1) prior",
            "Komiyama, Honda, Nakagawa, ICML 2015",
        ),
        _built_in(
            "rca-m", regenerative, _NO_MORE, "regenerative cycle algorithm with M parallel blocks",
            "Tekin and Liu, IEEE-IT 2012",
        ),
        _built_in("mp-lucb", lucb, _CONTEXTS, "linear model of the perturbation, ranked in every slot", _LI),
        _built_in(
            "mp-lucb-rca", lucb, _CONTEXTS, "MP-LUCB in the frame of RCA, with the pessimistic width", _LI,
            frame="rca", base="index", width="pessimistic", explore_first=True, L=1.0,
        ),
        _built_in(
            "mp-lucb-printed", lucb, _CONTEXTS, "Algorithm 1 exactly as printed; does not learn", _LI,
            target="prediction", base="none", estimate="add", replace="reward",
        ),
        _built_in("mp-nucb", nucb, _CONTEXTS, "neural model of the perturbation, ranked in every slot", _LI),
        _built_in(
            "mp-nucb-rca", nucb, _CONTEXTS, "MP-NUCB in the frame of RCA, with the pessimistic width", _LI,
            frame="rca", base="index", width="pessimistic", explore_first=True, base_L=1.0,
        ),
        _built_in(
            "mp-nucb-printed", nucb, _CONTEXTS, "MP-NUCB with index, replacement and network as printed",
            _LI, dropout=0.1, centre=False, constant=False, base="none", estimate="add", replace="reward",
        ),
        # Other published policies for restless channels and for contexts.
        _built_in("mp-swucb", sliding_window, _NO_MORE, "MP-UCB over a sliding window of slots", _GARIVIER),
        _built_in("mp-ducb", discounted, _NO_MORE, "MP-UCB with discounted rewards and plays", _GARIVIER),
        _built_in(
            "glr-klucb", glr_klucb, _NO_MORE, "KL-UCB that restarts a channel when a test finds a change",
            "Besson, Kaufmann, Maillard and Seznec, JMLR 2022",
        ),
        _built_in(
            "exp3-m", exp3_m, _NO_MORE, "exponential weights, for rewards of any origin",
            "Uchiya, Nakamura and Kudo, ALT 2010",
        ),
        _built_in(
            "dsee", dsee, _NO_MORE, "exploration and exploitation in turn, in growing epochs",
            "Liu, Liu and Zhao, IEEE-IT 2013",
        ),
        _built_in(
            "restless-ucb", restless_ucb, _NO_MORE, "explore, then the Whittle index of optimistic chains",
            "Wang, Huang and Lui, NeurIPS 2020",
        ),
        _built_in(
            "mp-whittle", learned_whittle, _NO_MORE, "Whittle index of chains learned from consecutive slots",
            "Akbarzadeh and Mahajan, IEEE-TCNS 2024",
        ),
        _built_in(
            "mp-ts-episodes", episodic_thompson, _NO_MORE, "episodic Thompson sampling of transition probabilities",
            "Jung, Abeille and Tewari 2019",
        ),
        _built_in(
            "whittle-q", whittle_q, _NO_MORE, "Q-learning of the Whittle index of last observations",
            "Avrachenkov and Borkar, Automatica 2022",
        ),
        _built_in(
            "c2ucb", lucb, _CONTEXTS, "one linear model of the reward for all channels",
            "Qin, Chen and Zhu, SDM 2014",
            target="reward", shared=True, base="none", estimate="add", replace="off",
        ),
        _built_in(
            "linucb", lucb, _CONTEXTS, "a linear model of the reward per channel",
            "Li, Chu, Langford and Schapire, WWW 2010",
            target="reward", base="none", estimate="add", replace="off",
        ),
        # Both earn less in S1 to S4 with the gamma of mp-nucb, 1; values from 0.03 to 0.3 make little difference.
        _built_in(
            "neural-ucb", nucb, _CONTEXTS, "neural model of the reward with an upper confidence bound",
            "Zhou, Li and Gu, ICML 2020",
            gamma=0.1, target="reward", base="none", estimate="add", replace="off", covariance="block",
        ),
        _built_in(
            "neural-ts", nucb, _CONTEXTS, "neural model of the reward with Thompson sampling",
            "Zhang, Zhou, Li and Gu, ICLR 2021",
            gamma=0.1, target="reward", base="none", estimate="add", replace="off", covariance="block", width="sampled",
        ),
        # Rules without a model.
        _built_in(
            "mp-stay", stay, _NO_MORE, "keep idle channels; replace others by the oldest observed", _OURS,
        ),
        _built_in(
            "mp-lbt", listen_before_talk, _NO_MORE, "listen before talk with random back-off", "IEEE 802.11",
        ),
        # Beyond the paper.
        _built_in("mp-belief", belief, _NO_MORE, "belief over states from chains learned online", _OURS),
        _built_in(
            "mp-belief-lucb", belief_lucb, _CONTEXTS,
            "belief over states and a linear model of the perturbation", _OURS,
        ),
        _built_in(
            "mp-belief-nucb", belief_nucb, _CONTEXTS,
            "belief over states and a neural model of the perturbation", _OURS,
        ),
        _built_in(
            "mp-adaptive", adaptive, _NO_MORE, "P(idle) from several predictors, mixed by their success", _OURS,
        ),
        _built_in(
            "mp-adaptive-lucb", adaptive_lucb, _CONTEXTS,
            "P(idle) of mp-adaptive; weighted linear perturbation model", _OURS,
        ),
        # Oracles.
        _built_in(
            "oracle-static", oracle, _PARAMETERS, "best fixed set of M channels by mean reward", _LI, value="static",
        ),
        _built_in(
            "oracle-contextual", oracle, _BOTH, "best M channels given the contexts", _LI, value="contextual",
        ),
        _built_in(
            "oracle-belief", oracle, _BOTH, "best M channels given contexts and belief (myopic)",
            "Ahmad and Liu, Allerton 2009",
        ),
        _built_in("oracle-whittle", oracle, _BOTH, "Whittle index given contexts and belief", _LIU, value="whittle"),
        _built_in(
            "whittle", oracle, _PARAMETERS, "Whittle index without contexts", _LIU, value="whittle", contexts=False,
        ),
        _built_in(
            "genie", oracle, _EVERYTHING, "best M channels given all states and perturbations", _LI, value="realised",
        ),
    )
}  # fmt: skip


# Policies of single users without a base station, who observe what scenario.users.observes says.
_COLLISIONS = frozenset([COLLISIONS_SEEN])
_COLLISIONS_AND_USERS = _COLLISIONS | frozenset([USERS_KNOWN])
_START = _COLLISIONS | frozenset([ALL_AVAILABLE])  # with a start phase


def _of_user(name: str, module: Any, knows: frozenset[str], description: str, reference: str, **preset: Any) -> Policy:
    made = _built_in(name, module, knows, description, reference, **preset)
    signal, hear = getattr(module, "signal", None), getattr(module, "hear", None)
    return replace(made, decentralised=True, signal=signal, hear=hear)


DECENTRALISED: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        _of_user("user-random", user_random, _NO_MORE, "a random channel in every slot", _OURS),
        _of_user(
            "lbt-random", user_lbt, _COLLISIONS, "listen before talk on random channels, with back-off",
            "IEEE 802.11", sticky=False,
        ),
        _of_user(
            "lbt-sticky", user_lbt, _COLLISIONS, "listen before talk, keeps a good channel; back-off",
            "IEEE 802.11",
        ),
        _of_user(
            "selfish-klucb", selfish, _NO_MORE, "KL-UCB of the own rewards, 0 on a collision",
            "Besson and Kaufmann, ALT 2018",
        ),
        _of_user(
            "rho-rand", rho_rand, _COLLISIONS_AND_USERS, "KL-UCB: the channel of a random rank",
            "Anandkumar, Michael, Tang and Swami, IEEE-JSAC 2011",
        ),
        _of_user(
            "randtopm", top_m_users, _COLLISIONS_AND_USERS, "KL-UCB: a random one of the M best channels",
            "Besson and Kaufmann, ALT 2018", chairs=False, collision_first=True,
        ),
        _of_user(
            "mctopm", top_m_users, _COLLISIONS_AND_USERS,
            "KL-UCB: keeps one of the M best channels once alone",
            "Besson and Kaufmann, ALT 2018",
        ),
        _of_user(
            "musical-chairs", musical_chairs, _COLLISIONS, "learn at random, then sit on one of the best channels",
            "Rosenski, Shamir and Szlak, ICML 2016",
        ),
        _of_user(
            "dynamic-musical-chairs", musical_chairs, _COLLISIONS,
            "musical chairs that begin again in every epoch",
            "Rosenski, Shamir and Szlak, ICML 2016", epoch=20_000,
        ),
        _of_user(
            "sic-mmab", sic_mmab, _START | frozenset([HORIZON_KNOWN]), "explores in turn, and sends sums by collisions",
            "Boursier and Perchet, NeurIPS 2019",
        ),
        _of_user(
            "dpe1", dpe1, _START, "one user explores, and sends the best by collisions",
            "Wang, Proutiere, Ariu, Jedra and Russo, AISTATS 2020",
        ),
        _of_user(
            "game-of-thrones", game_of_thrones, _COLLISIONS, "a game finds an assignment for unequal users",
            "Bistritz and Leshem, NeurIPS 2018",
        ),
        _of_user(
            "dsee-users", dsee_users, _START, "explores and exploits in turn, in growing epochs",
            "Liu, Liu and Zhao, IEEE-IT 2013",
        ),
        # Ours, which follow the states of channels.
        _of_user(
            "belief-beacons", belief_beacons, _START | frozenset([OWN_STATES_SEEN, CONTROL_BITS]),
            "one common belief of all users, by control bits", _OURS,
        ),
        _of_user(
            "belief-groups", belief_groups, _START | frozenset([OWN_STATES_SEEN]),
            "belief over a group of channels for each user", _OURS,
        ),
    )
}  # fmt: skip


def all_policies() -> dict[str, Policy]:
    """Return the policies of base stations and those of single users."""
    return POLICIES | DECENTRALISED


PolicyLike = str | Policy | ConfiguredPolicy | type  # what `policy` accepts


def policy(source: PolicyLike, /, **parameters: Any) -> ConfiguredPolicy:
    """Return a policy with a value for every parameter.

    Parameters
    ----------
    source : str, type, Policy or ConfiguredPolicy
        Name of a policy such as ``"mp-lucb"``, ``"file.py:name"`` for a policy in a file, or a class decorated with
        `idleband.register`. Text may end with parameters: ``"mp-lucb:beta=0.5,shared=true"``.
    **parameters
        Values of parameters. The others keep their defaults.

    Returns
    -------
    ConfiguredPolicy

    Raises
    ------
    InputError
        If there is no such policy or parameter, or a value is not allowed.

    Examples
    --------
    >>> policy("mp-lucb", beta=0.5).values["frame"]
    'slot'
    >>> policy("mp-lucb:beta=0.5,shared=true")
    ConfiguredPolicy(mp-lucb beta=0.5 shared=true)
    """
    if isinstance(source, ConfiguredPolicy):
        return ConfiguredPolicy(source.policy, source.policy.values({**source.values, **_public_names(parameters)}))
    if isinstance(source, Policy):
        return ConfiguredPolicy(source, source.values(parameters))
    if isinstance(source, str):
        text = source
        source, written = split_parameters(text)
        for name in _public_names(parameters):
            if name in written:
                raise InputError(f"policy = {text!r}: {name} is given twice")
        parameters = {**written, **parameters}
    found = _find(source)
    return ConfiguredPolicy(found, found.values(parameters))


def _public_names(parameters: dict[str, Any]) -> dict[str, Any]:
    return {public_name(name): value for name, value in parameters.items()}


def grid(source: PolicyLike, /, **parameters: Any) -> list[ConfiguredPolicy]:
    """Return a policy with every combination of the given parameter values.

    Parameters
    ----------
    source : str, type, Policy or ConfiguredPolicy
        The policy, as in `idleband.policy`.
    **parameters
        A list of values, or one value, for each parameter. The last parameter varies fastest.

    Returns
    -------
    list of ConfiguredPolicy

    Examples
    --------
    >>> for configured in grid("mp-lucb", beta=[0.1, 0.5], shared=[True, False]):
    ...     print(configured.label)
    mp-lucb beta=0.1 shared=true
    mp-lucb beta=0.1
    mp-lucb beta=0.5 shared=true
    mp-lucb beta=0.5
    """
    axes = {}
    for name, value in parameters.items():
        axes[name] = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        if not axes[name]:
            named = policy(source).policy.name
            raise InputError(f"policy {named}: {public_name(name)} = []: a grid needs at least one value")
    points = itertools.product(*axes.values())
    return [policy(source, **dict(zip(axes, point, strict=True))) for point in points]


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
        raise InputError(f"policy {source}: add the name of a policy in this file: {source}:NAME")
    every = all_policies()
    if source not in every:
        raise unknown("policy", source, every)
    return every[source]


Compiled = Literal["auto", "require"]


def require_compiled(configured: ConfiguredPolicy, compiled: Compiled) -> ConfiguredPolicy:
    """Return a configured policy that is refused if `compiled` is "require" and it does not compile."""
    if _compiled_option(compiled) == "auto":
        return configured
    return replace(configured, policy=replace(configured.policy, compiled=compiled))


def _compiled_option(compiled: object) -> str:
    return choice(compiled, "compiled", ("auto", "require"))


# --- users' policies -------------------------------------------------------------------------------------------------


class _NoParams(NamedTuple):
    pass


ARGUMENTS = {
    "init": "setup",
    "select": "setup, state, slot, picks",
    "update": "setup, state, slot, feedback",
    "predict": "setup, state, contexts, out",
    "propensities": "setup, state, slot, out",
    "signal": "setup, state, slot, minislots",
    "hear": "setup, state, slot, minislots",
}
OPTIONAL = ("predict", "propensities", "signal", "hear")
KNOWN_TO_USERS = (USERS_KNOWN, HORIZON_KNOWN, OWN_STATES_SEEN, COLLISIONS_SEEN, CONTROL_BITS)


def register(
    cls: type[C] | None = None,
    /,
    *,
    name: str | None = None,
    decentralised: bool = False,
    knows: Iterable[str] = (),
    compiled: Compiled = "auto",
) -> Any:
    """Register a class that contains `init`, `select`, `update` and optionally `Params` as a policy.

    Used as a class decorator. The class only groups functions; they take no ``self``. The first line of its docstring
    becomes the description.

    Parameters
    ----------
    name : str, optional
        Name of the policy; the name of the class by default.
    decentralised : bool
        Whether it is the policy of a single user without a base station. Each user is then an instance of it, and the
        class may contain `signal` and `hear`.
    knows : list of str
        What the policy of a user knows, "number of users" and "horizon", which are otherwise 0 in `setup`, and what the
        scenario must provide: "states of own channels", "collisions" and "control bits".
    compiled : {"auto", "require"}
        What happens if the policy does not compile: by default it runs interpreted, with a `CompilationWarning`; with
        ``"require"`` it is refused with an `InputError`.

    Returns
    -------
    type
        The class itself.

    Raises
    ------
    InputError
        If a function is missing or takes the wrong number of arguments, if a parameter is not usable, or if the name
        belongs to a built-in policy.

    Examples
    --------
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
    >>> policy("first-channels")
    ConfiguredPolicy(first-channels)
    """

    def add(cls: type[C]) -> type[C]:
        if not isinstance(cls, type):
            raise InputError(f"policy = {shown(cls)}: @idleband.register must be above a class")
        public = check_name(name or cls.__name__, "policy")
        functions = user_code.functions_of(cls, f"policy {public}", ARGUMENTS, OPTIONAL)
        if public in all_policies() and all_policies()[public].source is None:
            raise InputError(f"policy {public}: this name is taken by a built-in policy")
        alone = validation.flag(decentralised, f"policy {public}: decentralised")
        known = [choice(word, f"policy {public}: knows", KNOWN_TO_USERS) for word in knows]
        for given, what in ((known, "knows"), (functions.keys() & {"signal", "hear"}, "signal or hear")):
            if given and not alone:
                raise InputError(f"policy {public}: {what} is for users without a base station; set decentralised=True")
        source, cacheable = user_code.source_of(cls, f"policy {public}")
        made = Policy(
            public, user_code.description_of(cls, "a user's policy"), cls.__module__,
            vars(cls).get("Params", _NoParams),
            functions["init"], functions["select"], functions["update"], functions.get("predict"),
            propensities=functions.get("propensities"), knows=frozenset(known),
            source=source, cacheable=cacheable, compiled=_compiled_option(compiled),
            decentralised=alone, signal=functions.get("signal"), hear=functions.get("hear"),
        )  # fmt: skip
        made.parameters  # noqa: B018  (an unusable Params is refused here, not at the first run)
        cls._idleband_policy = made  # type: ignore[attr-defined]
        (POLICIES if alone else DECENTRALISED).pop(public, None)
        (DECENTRALISED if alone else POLICIES)[public] = made
        return cls

    return add if cls is None else add(cls)
