"""How to choose: one file per idea."""
