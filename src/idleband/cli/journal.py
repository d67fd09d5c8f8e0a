"""The commands journal backup, journal verify, journal restore and journal export."""

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


def export(options: argparse.Namespace) -> None:
    """Write the decisions of an allocator, with their feedback, into a Parquet file."""
    from idleband.evaluation.log_file import write_log
    from idleband.service.journal_export import decision_log

    out = Path(options.out)
    if out.suffix != ".parquet":
        raise InputError(f"{out}: must end in .parquet")
    log = decision_log(Path(options.data), options.allocator)
    write_log(out, log)
    found = {
        "slots": len(log.slot),
        "with_propensities": int(log.known.sum()),
        "plays": int(log.selected.sum()),
        "with_feedback": int((log.reported_after > 0).sum()),
    }
    if options.json:
        print(json.dumps({"result": "exported", "file": str(out), **found}, indent=1))
    else:
        print(
            f"exported:  {out} ({counted(found['slots'], 'slot')}, {found['with_propensities']:,} with propensities;"
            f" {found['plays']:,} plays, {found['with_feedback']:,} with feedback)"
        )


def _print(options: argparse.Namespace, word: str, folder: Path, found: Summary) -> None:
    if options.json:
        print(json.dumps({"result": word, "folder": str(folder), **found._asdict()}, indent=1))
    else:
        print(*found.faults, f"{word}:  {folder} ({found})", sep="\n")
