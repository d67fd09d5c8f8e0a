"""The filter of request_ids: it contains everything that was added, and little else."""

from idleband.service.journal import digest
from idleband.service.request_filter import MIN_CAPACITY, RequestFilter


def fingerprints(prefix: str, count: int) -> list[int]:
    return [digest(f"{prefix}{i}".encode()) for i in range(count)]


def test_filter_contains_what_was_added_and_little_else() -> None:
    seen = RequestFilter(20_000)
    for one in fingerprints("a", 20_000):
        seen.add(one)
    assert all(seen.may_contain(one) for one in fingerprints("a", 20_000))
    wrong = sum(seen.may_contain(one) for one in fingerprints("b", 20_000))
    assert wrong < 48 + 4 * 48**0.5  # (1 - exp(-4/16))^4 = 0.24% on average
    assert not seen.is_full


def test_full_filter_says_so() -> None:
    seen = RequestFilter(0)
    for one in fingerprints("a", 2 * MIN_CAPACITY + 1):
        assert not seen.is_full
        seen.add(one)
    assert seen.is_full
    assert all(seen.may_contain(one) for one in fingerprints("a", 2 * MIN_CAPACITY + 1))
