"""Simulation of policies on sample paths of a scenario."""
