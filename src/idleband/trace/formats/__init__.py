"""Readers of recordings, one format per module."""
