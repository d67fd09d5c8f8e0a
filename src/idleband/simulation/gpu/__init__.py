"""Simulation on a GPU, one replication per thread."""
