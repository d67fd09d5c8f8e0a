"""The commands journal backup, verify, restore, export and copy."""

import argparse
import json
from pathlib import Path

from idleband.errors import InputError, counted
from idleband.service import journal_files
from idleband.service.journal_check import Summary
from idleband.service.postgres_url import FORM, PostgresUrl, journal_place


def backup(options: argparse.Namespace) -> None:
    """Copy the journal of a service into a new folder."""
    source, target = _folder(options.data), _folder(options.out)
    _print(options, "backup", target, journal_files.copy(source, target))


def restore(options: argparse.Namespace) -> None:
    """Copy a backup into a new folder for a service."""
    source, target = _folder(options.backup), _folder(options.data)
    _print(options, "restored", target, journal_files.copy(source, target))


def _folder(text: str) -> Path:
    """Return a folder; refuse a database, which has tools of its own."""
    place = journal_place(text)
    if isinstance(place, PostgresUrl):
        raise InputError(f"{place}: must be a folder; back up a database with pg_dump and restore it with pg_restore")
    return place


def copy(options: argparse.Namespace) -> None:
    """Copy the journal of a folder into a database."""
    source, target = journal_place(options.source), journal_place(options.target)
    if isinstance(source, PostgresUrl):
        raise InputError(f"{source}: must be the folder of a service, or a backup of one")
    if not isinstance(target, PostgresUrl):
        raise InputError(f"{target}: must be {FORM}; `idleband journal backup` copies into a folder")
    from idleband.service import postgres_files

    _print(options, "copied", target, postgres_files.copy(source, target))


def verify(options: argparse.Namespace) -> None:
    """Check a journal and print what is wrong with it."""
    place = journal_place(options.data)
    if isinstance(place, PostgresUrl):
        from idleband.service import postgres_files

        found = postgres_files.verify(place)
    else:
        found = journal_files.verify(place)
    _print(options, "faulty" if found.faults else "sound", place, found)
    if found.faults:
        raise InputError(f"{place}: {counted(len(found.faults), 'fault')} in the journal")


def export(options: argparse.Namespace) -> None:
    """Write the decisions of an allocator, with their feedback, into a Parquet file."""
    from idleband.evaluation.log_file import write_log

    out = Path(options.out)
    if out.suffix != ".parquet":
        raise InputError(f"{out}: must end in .parquet")
    place = journal_place(options.data)
    if isinstance(place, PostgresUrl):
        from idleband.service import postgres_files

        log = postgres_files.decision_log(place, options.allocator)
    else:
        from idleband.service.journal_export import decision_log

        log = decision_log(place, options.allocator)
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


def _print(options: argparse.Namespace, word: str, place: Path | PostgresUrl, found: Summary) -> None:
    if options.json:
        print(
            json.dumps(
                {
                    "result": word,
                    "journal" if isinstance(place, PostgresUrl) else "folder": str(place),
                    **found._asdict(),
                },
                indent=1,
            )
        )
    else:
        print(*found.faults, f"{word}:  {place} ({found})", sep="\n")
