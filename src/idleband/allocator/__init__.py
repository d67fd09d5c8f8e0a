"""The same policies, live: one slot at a time, with whatever feedback comes."""
