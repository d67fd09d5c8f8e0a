"""Time passes here, and only here."""
