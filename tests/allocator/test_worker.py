"""The thread of a policy with a deadline."""

import threading

import pytest

from idleband.allocator.worker import Worker


def test_tasks_run_in_order_and_exceptions_reach_their_futures() -> None:
    worker, done = Worker(), list[int]()
    futures = [worker.submit(lambda i=i: done.append(i)) for i in range(100)]  # type: ignore[misc]
    failed = worker.submit(lambda: 1 // 0)
    for future in futures:
        future.result(10)
    assert done == list(range(100))
    with pytest.raises(ZeroDivisionError):
        failed.result(10)
    assert worker.submit(lambda: 7).result(10) == 7


def test_an_abandoned_worker_runs_no_more_tasks() -> None:
    worker, begun, go = Worker(), threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return go.wait(60)

    hanging = worker.submit(hang)
    never = worker.submit(lambda: pytest.fail("must not run"))
    assert begun.wait(60)
    worker.abandon()
    go.set()
    assert hanging.result(10) is True
    with pytest.raises(TimeoutError):
        never.result(0.2)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "idleband-policy")
