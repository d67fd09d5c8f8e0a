"""Allocators over HTTP: durable, explainable, with a page to watch."""
