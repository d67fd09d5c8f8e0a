"""Damage journals in many ways: each must be refused, or be whole.

    python studies/corruptions.py [COUNT]        700 by default, half a minute; writes studies/corruptions.md

A journal is whole if the state of its allocator is byte for byte that of before, every acknowledged decision and report
is answered the same when it is repeated, and nothing is learned. Refused is one line, when the journal or the
allocator is opened or, for an old event, when a request needs it. Four in seven journals are damaged at random: flipped
bits, zeroed parts, truncated files, exchanged or repeated pages, a lock file that records nothing. One in seven has
changed rows, which SQLite does not notice: deleted, exchanged or altered events, snapshots and settings. One in seven
has one page of an earlier time, and one in seven is a copy, file by file, of a folder in which events are written
meanwhile.
"""

import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from idleband.errors import InputError, StorageError
from idleband.service.manager import AllocatorManager
from idleband.service.sqlite_journal import FILE_NAME

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.service.running import settings  # noqa: E402
from tests.service.test_journal import ROWS, KilledJournal, decide, pages, report  # noqa: E402

PAGE = 4096
REFUSED_LATER = "refused when an old event is needed"
OUTCOMES = ("whole", "refused", REFUSED_LATER, "different")

Outcomes = Counter[tuple[str, str]]  # kind of damage, outcome


def outcome(check: object, *arguments: object) -> str:
    """Return what came of a check of a journal; other exceptions than refusals end the study."""
    try:
        check(*arguments)  # type: ignore[operator]
    except InputError as error:
        return "refused" if len(str(error).splitlines()) == 1 else "different"
    except StorageError:
        return REFUSED_LATER
    except AssertionError:
        return "different"
    return "whole"


# --- at random -------------------------------------------------------------------------------------------------------


def damage(folder: Path, random_: random.Random) -> str:
    """Damage one file of a journal at random; return how."""
    log = folder / f"{FILE_NAME}-wal"
    file = random_.choice([folder / FILE_NAME, log]) if log.exists() else folder / FILE_NAME
    content = bytearray(file.read_bytes())
    kind = random_.choice(["a flipped bit", "eight flipped bits", "zeros", "a truncated file", "exchanged pages",
                           "a repeated page", "no record in the lock file"])  # fmt: skip
    first, second = (PAGE * random_.randrange(len(content) // PAGE) for _ in range(2))
    if kind in ("a flipped bit", "eight flipped bits"):
        for _ in range(1 if kind == "a flipped bit" else 8):
            content[random_.randrange(len(content))] ^= 1 << random_.randrange(8)
    elif kind == "zeros":
        at = random_.randrange(len(content))
        length = min(random_.randrange(1, 5000), len(content) - at)
        content[at : at + length] = bytes(length)
    elif kind == "a truncated file":
        del content[random_.randrange(len(content)) :]
    elif kind == "no record in the lock file":
        (folder / "lock").write_text("closed\n")
    else:
        one, other = bytes(content[first : first + PAGE]), bytes(content[second : second + PAGE])
        content[first : first + PAGE] = other
        if kind == "exchanged pages":
            content[second : second + PAGE] = one
    file.write_bytes(content)
    return kind


def at_random(killed: KilledJournal, folder: Path, count: int, found: Outcomes) -> None:
    for number in range(count):
        random_ = random.Random(number)
        killed.copy(folder, merged=random_.random() < 0.5)
        kind = damage(folder, random_)
        found[kind, outcome(killed.check, folder)] += 1
        shutil.rmtree(folder)


# --- aimed -----------------------------------------------------------------------------------------------------------


def changed_rows(killed: KilledJournal, folder: Path, count: int, found: Outcomes) -> None:
    """Change rows; every second journal has no log, and every third a lock file that records nothing."""
    for number in range(count):
        change, _ = list(ROWS.values())[number % len(ROWS)]
        journal = killed.copy(folder, merged=number % 2 == 0)
        with sqlite3.connect(journal) as connection:
            connection.executescript(change)
        connection.close()
        if number % 2:
            journal.with_name(f"{FILE_NAME}-wal").touch()
        if number % 3:
            journal.with_name("lock").write_text("closed\n")
        found["changed rows", outcome(killed.check, folder)] += 1
        shutil.rmtree(folder)


def older_pages(folder: Path, count: int, found: Outcomes) -> None:
    """Put pages of an earlier time into a journal, one by one."""
    made = folder / "made"
    manager = AllocatorManager(made, keep=30)
    manager.open("main", settings())
    earlier: list[bytes] = []
    for i in range(240):
        report(manager, decide(manager, i))
        manager.commit()
        if i % 40 == 39:
            manager.close()
            earlier.append((made / FILE_NAME).read_bytes())
            manager = AllocatorManager(made, keep=30)
    state = manager.allocators["main"].core.snapshot()()
    again = decide(manager, 238)
    manager.close()
    new = pages((made / FILE_NAME).read_bytes())

    def check(damaged: Path) -> None:
        manager = AllocatorManager(damaged, keep=30)
        try:
            core = manager.allocators["main"].core
            assert core.snapshot()() == state
            assert decide(manager, 238) == again
            assert core.snapshot()() == state
        finally:
            manager.journal.close()

    places = [(old, i) for old in earlier for i, page in enumerate(pages(old)) if i < len(new) and page != new[i]]
    random.Random(0).shuffle(places)
    for old, i in places[:count]:
        damaged = folder / "damaged"
        damaged.mkdir()
        (damaged / "lock").write_text("closed\n")
        (damaged / FILE_NAME).write_bytes(b"".join([*new[:i], pages(old)[i], *new[i + 1 :]]))
        found["a page of an earlier time", outcome(check, damaged)] += 1
        shutil.rmtree(damaged)
    shutil.rmtree(made)


def copies(folder: Path, count: int, found: Outcomes) -> None:
    """Copy a folder file by file while events are written in it."""
    manager = AllocatorManager(folder / "made", snapshot_every=500)
    manager.open("main", settings())
    acknowledged, stop = [0], threading.Event()

    def play() -> None:
        while not stop.is_set():
            report(manager, decide(manager, acknowledged[0]))
            manager.commit()
            acknowledged[0] += 1

    def check(copied: Path, before: int) -> None:
        opened = AllocatorManager(copied)
        try:
            core = opened.allocators["main"].core
            assert core.slot >= before
            assert core.status()["counts"]["reported"] >= before
            for i in random.Random(before).sample(range(core.slot), min(20, core.slot)):
                assert decide(opened, i).slot == i + 1
        finally:
            opened.journal.close()

    writer = threading.Thread(target=play)
    writer.start()
    try:
        for number in range(count):
            before, copied = acknowledged[0], folder / "copied"
            copied.mkdir()
            for name in random.Random(number).sample([FILE_NAME, f"{FILE_NAME}-wal", "lock"], 3):
                if (folder / "made" / name).exists():
                    shutil.copy(folder / "made" / name, copied)
                time.sleep(0.01 * (number % 4))
            found["a copy of a folder in use", outcome(check, copied, before)] += 1
            shutil.rmtree(copied)
    finally:
        stop.set()
        writer.join()
        manager.journal.close()
        shutil.rmtree(folder / "made")


def main(count: int) -> None:
    found: Outcomes = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        killed = KilledJournal(folder / "killed")
        at_random(killed, folder / "damaged", count * 4 // 7, found)
        changed_rows(killed, folder / "damaged", count // 7, found)
        older_pages(folder, count // 7, found)
        copies(folder, count // 7, found)
    lines = [
        "# Damaged journals",
        "",
        f"`python studies/corruptions.py {count}`, {time.monotonic() - began:.0f} seconds.",
        "",
        f"| damage | {' | '.join(OUTCOMES)} |",
        f"|---|{'---|' * len(OUTCOMES)}",
    ]
    for kind in dict.fromkeys(kind for kind, _ in found):
        lines.append(f"| {kind} | {' | '.join(str(found[kind, one]) for one in OUTCOMES)} |")
    totals = [sum(n for (_, outcome), n in found.items() if outcome == one) for one in OUTCOMES]
    lines.append(f"| all | {' | '.join(map(str, totals))} |")
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "corruptions.md").write_text(text)
    sys.exit(1 if totals[-1] else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 700)
