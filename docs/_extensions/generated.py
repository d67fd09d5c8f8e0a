"""Write reference pages from the source when the site is built.

A page contains a marker such as `<!-- generated: commands -->`, which is replaced by Markdown: the options of every
command from the argument parser, the operations of the service from its OpenAPI document, the parameters of every
policy from the registry.
"""

import argparse
import ast
import inspect
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

USAGE_WIDTH = 76  # characters
# The sentence before a marker is for readers of the Markdown files.
MARKER = re.compile(r"(?:`make docs` fills in this place from the source\.\n\n)?<!-- generated: (\w+) -->")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hook with Sphinx."""
    app.connect("source-read", replace_markers)
    return {"parallel_read_safe": True}


def replace_markers(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the markers in the text of a page."""
    source[0] = MARKER.sub(lambda found: "\n".join(GENERATED[found[1]]()), source[0])


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for row in (header, ("---",) * len(header), *rows):
        yield "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in row) + " |"
    yield ""


# --- commands --------------------------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    """Describe every command with its arguments and options."""
    from idleband.cli.parser import build_parser

    found = build_parser().commands
    rows = [(f"[`{name}`](#idleband-{name.replace(' ', '-')})", command.summary) for name, command in found.items()]
    yield from table(("command", "purpose"), rows)
    for name, command in found.items():
        yield f"## idleband {name}\n"
        yield f"{with_code(command.description)}\n"
        yield f"```text\n{usage(command.format_usage())}\n```\n"
        yield from table(
            ("argument", "meaning"),
            [(argument(a), with_code((a.help or "") % {"default": a.default})) for a in command.arguments],
        )


def with_code(text: str) -> str:
    """Return a text with options such as --json as code, in which two hyphens are not set as a dash."""
    return re.sub(r"(?<![\w`-])--[a-z][\w-]*", r"`\g<0>`", text)


def usage(text: str) -> str:
    """Return the usage of a command on lines of limited length, without a break between an option and its value."""
    words = " ".join(text.split()).removeprefix("usage: ")
    joined = re.sub(r"\[-(?:[^][]|\[[^]]*\])*\]", lambda option: option[0].replace(" ", "\0"), words)
    lines = textwrap.fill(joined, USAGE_WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def argument(action: argparse.Action) -> str:
    """Return an argument as users write it."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{option} {value}`".replace(" `", "`") for option in action.option_strings)


# --- HTTP ------------------------------------------------------------------------------------------------------------


def http() -> Iterator[str]:
    """Describe every operation of the service and the structures that it uses."""
    document = openapi_document()
    schemas = document["components"]["schemas"]
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    yield "## Operations\n"
    yield from table(
        ("operation", "purpose", "role", "body", "response"),
        [
            (
                f"`{method} {path}`", operation["summary"], operation["x-role"],
                structure(operation.get("requestBody")), success(operation),
            )
            for method, path, operation in operations
        ],
    )  # fmt: skip
    statuses = {
        status: response["description"]
        for _, _, operation in operations
        for status, response in operation["responses"].items()
        if status.startswith(("4", "5"))
    }
    yield "## Error statuses\n"
    yield "An error response is a `Problem`. Its `detail` is one line that names the field and what is allowed.\n"
    yield from table(("status", "meaning"), [(f"`{status}`", statuses[status]) for status in sorted(statuses)])
    yield "## Structures\n"
    for name, schema in schemas.items():
        yield f"### {name}\n"
        if "description" in schema:
            yield f"{schema['description']}\n"
        required = schema.get("required", [])
        yield from table(
            ("field", "type", "required", "meaning"),
            [
                (f"`{field}`", kind(value), "yes" if field in required else "", meaning(value))
                for field, value in schema.get("properties", {}).items()
            ],
        )


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of a service."""
    from idleband import __version__
    from idleband.service.app import Service
    from idleband.service.openapi import openapi

    with tempfile.TemporaryDirectory() as folder:
        return openapi(Service(Path(folder)).operations(), __version__, False)


def success(operation: dict[str, Any]) -> str:
    """Return the structure of a successful response."""
    responses = operation["responses"]
    return structure(responses[min(responses)])


def structure(part: dict[str, Any] | None) -> str:
    """Return the link to the structure of a body or response."""
    for media, content in (part or {}).get("content", {}).items():
        schema = content.get("schema", {})
        if "$ref" in schema:
            return kind(schema)
        return f"`{media}`"
    return ""


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a field."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(option) for option in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def meaning(schema: dict[str, Any]) -> str:
    """Return the description of a field, which may be that of one of its alternatives."""
    if "description" in schema:
        return str(schema["description"])
    return next((text for option in schema.get("anyOf", []) if (text := meaning(option))), "")


# --- policies --------------------------------------------------------------------------------------------------------


def parameters() -> Iterator[str]:
    """List the parameters of every policy."""
    from idleband.policies.registry import POLICIES

    for policy in POLICIES.values():
        yield f"### {policy.name}\n"
        yield f"{policy.description[0].upper()}{policy.description[1:]}. Reference: {policy.reference}.\n"
        rows = [
            (f"`{name}`", parameter.kind.__name__, f"`{parameter.default}`", parameter.meaning)
            for name, parameter in policy.parameters.items()
            if name not in policy.fixed
        ]
        yield from table(("parameter", "type", "default", "meaning"), rows) if rows else ["It has no parameters.\n"]


def records() -> Iterator[str]:
    """List the fields of the records of the policy protocol with the comments beside them in the source."""
    from idleband.policies import protocol

    source = Path(protocol.__file__).read_text()
    for name in ("Setup", "Slot", "Feedback", "Truth"):
        record = getattr(protocol, name)
        body = source.partition(f"\nclass {name}(NamedTuple):")[2].partition("\n\n\n")[0]
        found = re.findall(r"^    (\w+): ([^#\n]+?)(?:\s+# (.*))?$", body, re.MULTILINE)
        yield f"### {name}\n"
        yield f"{inspect.cleandoc(record.__doc__).partition(chr(10))[0]}\n"
        yield from table(("field", "type", "meaning"), [(f"`{field}`", kind, text) for field, kind, text in found])


# --- modules ---------------------------------------------------------------------------------------------------------

LAYERS = (
    "cli",
    "paper",
    "service",
    "advice",
    "evaluation",
    "reporting",
    "experiments",
    "cluster",
    "allocator",
    "environments",
    "simulation",
    "policies",
    "scenario",
    "trace",
    "kernels",
    "",  # modules outside packages
)


def modules() -> Iterator[str]:
    """List every module with the first sentence of its docstring, layer by layer."""
    import idleband

    package = Path(idleband.__file__).parent
    for layer in LAYERS:
        files = sorted((package / layer).rglob("*.py") if layer else package.glob("*.py"))
        rows = [(f"`{file.relative_to(package)}`", summary(file)) for file in files if not file.name.startswith("__")]
        yield f"### {layer}/\n" if layer else "### other modules\n"
        yield from table(("module", "content"), rows)


def summary(file: Path) -> str:
    """Return the first sentence of the docstring of a module."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return re.split(r"(?<=[.:])\s", " ".join(text.partition("\n\n")[0].split()))[0].rstrip(":")


GENERATED: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "http": http,
    "parameters": parameters,
    "records": records,
    "modules": modules,
}
