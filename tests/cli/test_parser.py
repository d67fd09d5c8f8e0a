"""The parser of the command line as a list of commands, which the documentation is generated from."""

from idleband.cli.main import COMMANDS
from idleband.cli.parser import build_parser


def test_every_command_is_listed_with_a_summary_and_arguments() -> None:
    commands = build_parser().commands
    assert list(commands) == list(COMMANDS)
    assert all(command.summary and command.arguments for command in commands.values())
