"""Recorded spectrum: trace files, importers, thresholds and statistics."""
