"""Experiments: their description, results folders, studies and rankings."""
