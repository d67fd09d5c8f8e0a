"""Policies by name and policies of users: compiled, interpreted, and invalid ones."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import idleband as ib
from idleband.policies.protocol import RESERVED
from idleband.policies.registry import POLICIES
from idleband.simulation.result import COLUMNS
from tests.conftest import ROOT

NAMES = [
    *("mp-random", "mp-ucb", "mp-klucb", "mp-ts", "rca-m"),
    *("mp-lucb", "mp-lucb-rca", "mp-lucb-printed", "mp-nucb", "mp-nucb-rca", "mp-nucb-printed"),
    *("mp-swucb", "mp-ducb", "glr-klucb", "exp3-m", "dsee", "restless-ucb"),
    *("mp-whittle", "mp-ts-episodes", "whittle-q", "c2ucb", "linucb", "neural-ucb", "neural-ts"),
    *("mp-stay", "mp-lbt"),
    *("mp-belief", "mp-belief-lucb", "mp-belief-nucb", "mp-adaptive", "mp-adaptive-lucb"),
    *("oracle-static", "oracle-contextual", "oracle-belief", "oracle-whittle", "whittle", "genie"),
]

OWN = '''
import numpy as np
import idleband as ib

@ib.register
class Plain:
    """Rank by the first entry of the context."""
    def init(setup):
        return ()
    def select(setup, state, slot, picks):
        for k in range(setup.K):
            slot.indices[k] = slot.contexts[k, 0]
        return ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    def update(setup, state, slot, feedback):
        pass

@ib.register
class Allocating:
    """The same, with an array allocated in every slot."""
    def init(setup):
        return ()
    def select(setup, state, slot, picks):
        order = np.argsort(-slot.contexts[:, 0])
        for m in range(setup.M):
            picks[m] = order[m]
        return setup.M
    def update(setup, state, slot, feedback):
        pass

@ib.register
class Interpreted:
    """The same, with objects that do not compile."""
    def init(setup):
        return {"slots": 0}
    def select(setup, state, slot, picks):
        state["slots"] += 1
        picks[: setup.M] = sorted(range(setup.K), key=lambda k: -slot.contexts[k, 0])[: setup.M]
        return setup.M
    def update(setup, state, slot, feedback):
        pass
'''

BROKEN = """
import idleband as ib

@ib.register
class Policy:
    def init(setup):
        return {state}
    def select(setup, state, slot, picks):
        {body}
        return setup.M
    def update(setup, state, slot, feedback):
        pass
"""

INVALID_SELECTIONS = """
from typing import Annotated, NamedTuple
import idleband as ib

@ib.register
class Policy:
    class Params(NamedTuple):
        case: Annotated[int, ib.AtLeast(0), "which invalid selection"] = 0
    def init(setup):
        return ()
    def select(setup, state, slot, picks):
        if setup.params.case == 0:
            picks[0] = 99
        elif setup.params.case == 1:
            picks[:] = -3
        elif setup.params.case == 2:
            picks[:] = 2
        return 2 if setup.params.case == 3 else setup.M
    def update(setup, state, slot, feedback):
        pass
"""


def own_file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_names_of_built_in_policies() -> None:
    assert [name for name in POLICIES if POLICIES[name].source is None] == NAMES


def test_open_points_of_the_paper_are_parameters() -> None:
    rows = {"target", "lambda", "base", "width", "estimate", "frame", "explore_first", "replace", "shared"}
    network = {"L", "D", "gamma", "learning_rate", "dropout", "batch", "memory", "train_every", "covariance"}
    for ending in ("", "-rca", "-printed"):
        assert rows | {"beta"} < set(POLICIES["mp-lucb" + ending].parameters)
        assert rows | network < set(POLICIES["mp-nucb" + ending].parameters)


def test_variants_of_a_policy_are_parameter_settings() -> None:
    def values_of(name: str) -> dict[str, Any]:
        return ib.policy(name).values

    usual = {"frame": "slot", "base": "mean", "width": "optimistic", "explore_first": False, "replace": "indicator"}
    assert usual.items() <= values_of("mp-lucb").items()
    assert {"frame": "rca", "base": "index", "width": "pessimistic"}.items() <= values_of("mp-lucb-rca").items()
    printed = {"base": "none", "estimate": "add", "frame": "slot", "replace": "reward"}
    assert (printed | {"target": "prediction"}).items() <= values_of("mp-lucb-printed").items()
    assert usual.items() <= values_of("mp-nucb").items()
    assert {"frame": "rca", "base": "index", "width": "pessimistic"}.items() <= values_of("mp-nucb-rca").items()
    assert (printed | {"dropout": 0.1, "centre": False, "constant": False}).items() <= values_of(
        "mp-nucb-printed"
    ).items()


def test_lambda_with_and_without_underscore() -> None:
    """`lambda` is a Python keyword, so both spellings are accepted."""
    for name in ("mp-lucb", "mp-nucb"):
        assert ib.policy(name, lambda_=2.0) == ib.policy(name, **{"lambda": 2})
        assert ib.policy(name, lambda_=2.0).label == f"{name} lambda=2"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("mp-ubc", {}, "unknown policy 'mp-ubc': did you mean 'mp-ucb'?"),
        ("mp-lucb", {"bta": 1}, "unknown parameter 'bta' of policy mp-lucb: did you mean 'beta'?"),
        ("mp-lucb", {"beta": float("nan")}, "policy mp-lucb: beta = nan: must be a finite number of at least 0"),
        ("mp-lucb", {"beta": -1}, "beta = -1: must be a finite number of at least 0"),
        ("mp-lucb", {"beta": "much"}, "beta = 'much': must be a finite number of at least 0"),
        ("mp-lucb", {"beta": True}, "beta = True: must be"),
        ("mp-lucb", {"lambda": 0}, "lambda = 0: must be a finite number of at least 1e-09"),
        ("mp-lucb", {"beta": 1e300}, "beta = 1e+300: must be a finite number of at least 0"),
        ("mp-lucb", {"width": "wide"}, "width = 'wide': must be one of optimistic, pessimistic, sampled"),
        ("mp-lucb", {"shared": 1}, "shared = 1: must be true or false"),
        ("mp-random", {"L": 1}, "unknown parameter 'L' of policy mp-random"),
    ],
)
def test_invalid_policies_and_parameters_are_refused(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError) as error:
        ib.policy(name, **parameters)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_parameter_values_may_be_text() -> None:
    values = ib.policy("mp-lucb", beta="0.5", shared="true", frame="rca").values
    assert (values["beta"], values["shared"], values["frame"]) == (0.5, True, "rca")


def test_user_policies_agree_compiled_and_interpreted(tmp_path: Path) -> None:
    path = own_file(tmp_path, OWN)
    names = ("Plain", "Allocating", "Interpreted")
    plain, allocating, interpreted = (
        ib.simulate("S1", f"{path}:{name}", horizon=200, replications=2) for name in names
    )
    assert (plain.note, allocating.note) == ("", "")
    assert "Cannot determine Numba type of <class 'dict'>" in interpreted.note
    for other in (allocating, interpreted):
        assert np.array_equal(plain.plays, other.plays)
        np.testing.assert_allclose(plain.reward, other.reward)  # the order of the sums differs
    assert interpreted.state == ({"slots": 200}, {"slots": 200})


def test_edited_file_is_a_different_policy(tmp_path: Path) -> None:
    path = own_file(tmp_path, OWN)
    first = ib.policy(f"{path}:Plain").policy.source
    before = ib.simulate("S1", f"{path}:Plain", horizon=50, replications=1).plays
    path.write_text(OWN.replace("slot.contexts[k, 0]", "slot.contexts[k, 1]"))
    assert ib.policy(f"{path}:Plain").policy.source != first
    after = ib.simulate("S1", f"{path}:Plain", horizon=50, replications=1).plays
    assert not np.array_equal(before, after)


def test_names_that_differ_only_in_punctuation_are_different_policies(tmp_path: Path) -> None:
    plain = OWN.split("@ib.register")[1]
    header = "import idleband as ib\n"
    one_text = f'@ib.register(name="a_b"){plain}'
    other_text = f'@ib.register(name="a-b"){plain}'.replace("class Plain", "class Other").replace(
        "contexts[k, 0]", "contexts[k, 1]"
    )
    path = own_file(tmp_path, header + one_text + other_text)
    plays = [ib.simulate("S1", f"{path}:{name}", horizon=50, replications=1).plays for name in ("a_b", "a-b")]
    assert not np.array_equal(*plays)


def test_interactive_redefinition_is_a_different_policy() -> None:
    """Interactive code may depend on other variables, so its compiled code is not reused."""
    cell = OWN.split("@ib.register\nclass Allocating")[0].replace("slot.contexts[k, 0]", "slot.contexts[k, FIRST]")
    plays = []
    for first in (0, 1):
        exec(compile(cell, "<cell>", "exec"), {"__name__": "cell", "FIRST": first})
        plays.append(ib.simulate("S1", "Plain", horizon=50, replications=1).plays)
    assert not np.array_equal(*plays)


def test_policy_of_an_imported_module_is_identified_by_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    imported = own_file(tmp_path, OWN, "own_policies_module.py")
    path = own_file(tmp_path, "from own_policies_module import Plain\n")
    assert ib.policy(f"{path}:Plain").policy.source == hashlib.sha256(imported.read_bytes()).hexdigest()


def test_column_names_are_reserved() -> None:
    assert {"scenario", "policy", "label", "replication", "t", *COLUMNS} <= RESERVED


def test_epsilon_greedy_example_earns_more_than_random() -> None:
    result = ib.simulate("S1", f"{ROOT}/examples/epsilon_greedy.py:epsilon-greedy", horizon=3000, epsilon=0.1)
    assert result.note == ""
    assert result.label == "epsilon-greedy epsilon=0.1"
    assert result.reward[:, -1].min() > ib.simulate("S1", "mp-random", horizon=3000).reward[:, -1].max()


def refused_run(source: str) -> str:
    """Return the message with which a run of a policy is refused."""
    with pytest.raises(ib.InputError) as error:
        ib.simulate("S1", source, horizon=10, replications=1)
    return str(error.value)


def test_invalid_selections_are_refused(tmp_path: Path) -> None:
    path = own_file(tmp_path, INVALID_SELECTIONS)
    for case, picks in enumerate(([99, 0, 0, 0, 0], [-3] * 5, [2] * 5, [0, 0])):
        message = f"policy Policy: picks = {picks} in slot 1; must be 5 different available channels"
        assert message in refused_run(f"{path}:Policy:case={case}")


@pytest.mark.parametrize(
    ("state", "body", "message"),
    [
        ("{}", "state['x']", "policy Policy: KeyError: 'x' ("),
        ("1 / 0", "pass", "policy Policy: ZeroDivisionError: division by zero ("),
    ],
)
def test_error_of_a_policy_names_the_policy(tmp_path: Path, state: str, body: str, message: str) -> None:
    assert message in refused_run(f"{own_file(tmp_path, BROKEN.format(state=state, body=body))}:Policy")


def test_invalid_registrations_are_refused() -> None:
    class Parameters(NamedTuple):
        size: str = "large"

    def nothing(*_: Any) -> None:
        return None

    functions = {"init": nothing, "select": nothing, "update": nothing}
    for members, name, message in (
        ({}, "a", "policy a: init is missing"),
        (functions, "mp-ucb", "policy mp-ucb: this name is taken by a built-in policy"),
        (
            {**functions, "update": len},
            "c",
            r"policy c: update must take \(setup, state, slot, feedback",
        ),
        (functions, "_$x$", r"policy = '_\$x\$': must be 1 to 80 letters"),
        ({**functions, "Params": Parameters}, "b", "parameter size must be a float, an int or a bool"),
    ):
        with pytest.raises(ib.InputError, match=message):
            ib.register(name=name)(type("Own", (), members))
    with pytest.raises(ib.InputError, match=r"put @idleband\.register above the class"):
        ib.policy(Parameters)
    with pytest.raises(ib.InputError, match=r"policy = <function .*nothing.*must be above a class"):
        ib.register(nothing)


def test_text_with_parameters_is_accepted_wherever_a_policy_is(tmp_path: Path) -> None:
    path = own_file(tmp_path, (ROOT / "examples" / "epsilon_greedy.py").read_text(), "a=b.py")
    assert ib.policy("mp-lucb:beta=0.5,shared=true") == ib.policy("mp-lucb", beta=0.5, shared=True)
    assert ib.policy("mp-lucb: beta = 0.5", shared=True) == ib.policy("mp-lucb", beta=0.5, shared=True)
    assert ib.policy("mp-lucb:lambda_=2") == ib.policy("mp-lucb:lambda=2") == ib.policy("mp-lucb", lambda_=2)
    assert ib.policy(f"{path}:epsilon-greedy:epsilon=0.3").label == "epsilon-greedy epsilon=0.3"
    assert ib.simulate("S1", "mp-ucb:L=2", horizon=20, replications=1).label == "mp-ucb L=2"
    assert ib.Allocator("mp-ucb:L=2", channels=3, users=1, dimension=1).settings.parameters == {"L": 2.0}


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("mp-lucb:beta", {}, "policy = 'mp-lucb:beta': 'beta' must be key=value"),
        ("mp-lucb:", {}, "'' must be key=value"),
        ("mp-lucb:=1", {}, "'=1' must be key=value"),
        ("beta=1", {}, "must be NAME:key=value"),
        (":beta=1", {}, "must be NAME:key=value"),
        ("mp-lucb:beta=1,beta=2", {}, "beta is given twice"),
        ("mp-lucb:lambda=1", {"lambda_": 2}, "lambda is given twice"),
        ("mp-lucb:beta=much", {}, "beta = 'much': must be a finite number"),
        ("mine.py", {}, "policy mine.py: add the name of a policy in this file: mine.py:NAME"),
    ],
)
def test_invalid_text_with_parameters_is_refused(text: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError) as error:
        ib.policy(text, **parameters)
    assert message in str(error.value)


def test_grid_is_the_product_of_the_values() -> None:
    labels = [configured.label for configured in ib.grid("mp-lucb", beta=[0.1, 0.5], shared=[True, False])]
    assert labels == [
        *("mp-lucb beta=0.1 shared=true", "mp-lucb beta=0.1", "mp-lucb beta=0.5 shared=true", "mp-lucb beta=0.5"),
    ]
    assert ib.grid("mp-lucb:shared=true", beta=np.array([0.1, 0.5]), width="sampled") == [
        ib.policy("mp-lucb", shared=True, beta=beta, width="sampled") for beta in (0.1, 0.5)
    ]
    assert ib.grid("mp-ucb") == [ib.policy("mp-ucb")]
    with pytest.raises(ib.InputError, match=r"policy mp-lucb: beta = \[\]: a grid needs at least one value"):
        ib.grid("mp-lucb", beta=[])


def test_repr_is_one_short_line() -> None:
    configured = ib.policy("mp-lucb", beta=0.5)
    assert repr(configured) == "ConfiguredPolicy(mp-lucb beta=0.5)"
    assert repr(configured.policy) == "Policy(mp-lucb: linear model of the perturbation, ranked in every slot)"
    assert "<td>beta</td><td>0.5</td>" in configured._repr_html_()
