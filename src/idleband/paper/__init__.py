"""Reproduction of the paper: readings, planned studies, claims with verdicts, figures and one report."""
