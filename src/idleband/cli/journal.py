"""The commands journal backup, journal verify and journal restore."""

import argparse
import json
from pathlib import Path

from idleband.errors import InputError, counted
from idleband.service import journal_files
from idleband.service.journal_check import Summary


def backup(options: argparse.Namespace) -> None:
    """Copy the journal of a service into a new folder."""
    _print(options, "backup", Path(options.out), journal_files.copy(Path(options.data), Path(options.out)))


def restore(options: argparse.Namespace) -> None:
    """Copy a backup into a new folder for a service."""
    _print(options, "restored", Path(options.data), journal_files.copy(Path(options.backup), Path(options.data)))


def verify(options: argparse.Namespace) -> None:
    """Check a journal and print what is wrong with it."""
    folder = Path(options.data)
    found = journal_files.verify(folder)
    _print(options, "faulty" if found.faults else "sound", folder, found)
    if found.faults:
        raise InputError(f"{folder}: {counted(len(found.faults), 'fault')} in the journal")


def _print(options: argparse.Namespace, word: str, folder: Path, found: Summary) -> None:
    if options.json:
        print(json.dumps({"result": word, "folder": str(folder), **found._asdict()}, indent=1))
    else:
        print(*found.faults, f"{word}:  {folder} ({found})", sep="\n")
