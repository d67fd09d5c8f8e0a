"""Fit of channel models to a trace: estimates with intervals, tests, and a scenario file."""
