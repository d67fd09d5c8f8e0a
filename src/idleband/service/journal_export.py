"""Export the decisions of an allocator from a journal as a decision log."""

import contextlib
import json
import sqlite3
from pathlib import Path

import msgspec

from idleband.allocator.settings import Settings
from idleband.errors import IdlebandError, InputError, unknown
from idleband.evaluation.decision_log import DecisionLog, LogCollector
from idleband.service import journal_check, journal_files
from idleband.service.event_bodies import read_decision, read_report
from idleband.service.journal import DECIDE, REPORT
from idleband.service.journal_check import Rows
from idleband.service.sqlite_journal import connect_to_read
from idleband.service.sqlite_rows import SqliteRows, file_faults


def decision_log(folder: Path, name: str) -> DecisionLog:
    """Return the decisions of an allocator that the journal of a folder keeps, with their feedback.

    A service may use the journal meanwhile. Raises InputError if there is no journal, if it is damaged, or if it does
    not have this allocator.
    """
    path = journal_files.existing(folder)
    try:
        with contextlib.closing(connect_to_read(path)) as reader:
            reader.execute("BEGIN")  # everything is read as it is now
            for fault in file_faults(reader, 1):
                raise InputError(f"{path}: {fault}")
            if reader.execute("SELECT format FROM about").fetchone()[0] != journal_check.FORMAT:
                raise InputError(f"{path}: has an older format; open it with `idleband serve` once, which converts it")
            return decision_log_of(SqliteRows(reader), name, str(path))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def decision_log_of(rows: Rows, name: str, path: str) -> DecisionLog:
    """Return the decisions of an allocator among the rows of a journal, with their feedback."""

    def refuse(fault: str) -> None:
        raise InputError(f"{path}: {fault}")

    stored = {one.name: one for one in journal_check.stored_allocators(rows, refuse)}
    if name not in stored:
        raise unknown("allocator", name, stored)
    one = stored[name]
    chain = journal_check.chain_of(rows, one, refuse)
    place = f"{path}: allocator {name}"
    try:
        collector = LogCollector(Settings.restored(json.loads(one.settings)))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    for event in journal_check.checked_events(rows, one, chain, None, chain.first - 1, refuse):
        try:
            if event.kind == DECIDE:
                request, recorded, known = read_decision(event, collector.settings)
                collector.decide(request, recorded.decision, known.allowed, known.propensities, known.time)
            elif event.kind == REPORT:
                collector.report(read_report(event))
        except (msgspec.DecodeError, IdlebandError, ValueError, IndexError) as error:
            raise InputError(f"{place}: event {event.seq} cannot be read: {error}") from None
    return collector.log(place)
