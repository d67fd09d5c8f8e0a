"""Offline evaluation: what other policies would have earned in the slots of a logged allocator."""
