"""Mutated requests get a response below 500 or a closed connection, and leave no traceback in the log."""

import logging
from collections import Counter
from pathlib import Path

import pytest

from tests.service.mutated_requests import Mutations, send
from tests.service.running import TIMEOUT, eventually, in_thread, settings

TOKEN = "a-token-of-the-tests"


def test_mutated_requests_are_answered_or_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    main = settings(channels=6, users=3, channel_names=[f"ch{k + 1}" for k in range(6)])
    mutations, counts = Mutations(1, TOKEN), Counter[int]()
    with in_thread(tmp_path, token=TOKEN, main=main) as service, caplog.at_level(logging.INFO):
        for number in range(300):
            data = mutations.request()
            outcome = send(service.port, data, TIMEOUT)
            assert outcome.ended, data
            assert not outcome.statuses or max(outcome.statuses) < 500, (data, outcome.found)
            counts.update(outcome.statuses)
            if number % 50 == 0:
                contexts = [[0.5, 0.5]] * 6
                assert service.decide(f"valid-{number}", contexts=contexts).status == 200
        state = service.state()
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert {200, 400, 401, 404, 405} <= set(counts), counts
    with in_thread(tmp_path, token=TOKEN, main=main) as service:  # what was answered is in the journal
        eventually(lambda: service.get("/health").status == 200)
        assert service.state() == state
