"""Policies of single users without a base station, one per file, and what several of them share."""
