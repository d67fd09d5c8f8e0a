"""Histograms of durations, for the metrics."""

from bisect import bisect_left

# Seconds; upper limits of the buckets.
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Histogram:
    """Counts of durations by bucket, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.seconds += seconds
        self.counts[bisect_left(BUCKETS, seconds)] += 1
