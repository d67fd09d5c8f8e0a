"""HTML reports: templates of a package, with the style that all reports share."""

from typing import Any


def render(package: str, name: str, **values: Any) -> str:
    """Return a template of a package, filled in; it may include style.html of this package."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package, "templates"), PackageLoader("idleband.reporting", "templates")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(name).render(**values)
