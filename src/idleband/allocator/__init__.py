"""Policies that decide one slot at a time and learn from reports."""
