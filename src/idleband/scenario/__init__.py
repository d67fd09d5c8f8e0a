"""Scenarios: channels, contexts, perturbation and rewards."""
