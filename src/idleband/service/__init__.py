"""Allocators over HTTP, with a journal, explanations and pages to watch them."""
