"""Configured policies: a policy with a value for every parameter, and their notation as text."""

from dataclasses import dataclass
from html import escape
from typing import Any

from idleband.errors import InputError
from idleband.policies.parameters import public_name
from idleband.policies.protocol import Policy


@dataclass(frozen=True, eq=False, repr=False)
class ConfiguredPolicy:
    """A policy with a value for every parameter.

    Made by `idleband.policy`, by the constructors in `idleband.policies` and by `idleband.grid`.

    Attributes
    ----------
    policy : Policy
        Definition of the policy: functions, parameters and reference.
    values : dict
        Value of every parameter, as users write it.
    params : NamedTuple
        The same values as the compiled functions read them.
    label : str
        Name and the parameters that differ from the defaults.

    Examples
    --------
    >>> import idleband as ib
    >>> ib.policy("mp-lucb", beta=0.5)
    ConfiguredPolicy(mp-lucb beta=0.5)
    """

    policy: Policy
    values: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfiguredPolicy) and (self.policy, self.values) == (other.policy, other.values)

    def __hash__(self) -> int:
        return hash((self.policy.name, self.policy.source, *self.values.values()))

    def __repr__(self) -> str:
        return f"ConfiguredPolicy({self.label})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(_text(value))}</td>"
            f"<td>{escape(self.policy.parameters[name].meaning)}</td></tr>"
            for name, value in self.values.items()
        )
        return (
            f"<p><b>{escape(self.policy.name)}</b>: {escape(self.policy.description)}</p>"
            f"<table><tr><th>parameter</th><th>value</th><th>meaning</th></tr>{rows}</table>"
        )

    @property
    def params(self) -> Any:
        """The parameters as the compiled functions read them."""
        return self.policy.compiled_params(self.values)

    @property
    def label(self) -> str:
        """Name and the parameters that differ from the defaults.

        >>> import idleband as ib
        >>> ib.policy("mp-lucb", beta=0.5).label
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


def split_parameters(text: str) -> tuple[str, dict[str, str]]:
    """Split ``NAME:key=value,key=value`` or ``file.py:NAME:key=value`` into the policy and its parameters, as text.

    >>> split_parameters("mp-lucb:beta=0.5,shared=true")
    ('mp-lucb', {'beta': '0.5', 'shared': 'true'})
    >>> split_parameters("mine.py:greedy:epsilon=0.1")
    ('mine.py:greedy', {'epsilon': '0.1'})
    """
    file, extension, rest = text.rpartition(".py:")
    name, colon, settings = rest.partition(":")
    if not name or (not colon and "=" in name):
        raise InputError(f"policy = {text!r}: must be NAME:key=value,key=value")
    parameters: dict[str, str] = {}
    for setting in settings.split(",") if colon else ():
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise InputError(f"policy = {text!r}: {setting!r} must be key=value")
        if public_name(key) in parameters:
            raise InputError(f"policy = {text!r}: {public_name(key)} is given twice")
        parameters[public_name(key)] = value
    return file + extension + name, parameters
