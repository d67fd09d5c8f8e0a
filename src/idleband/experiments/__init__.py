"""What to run, as data; and what was run, in files."""
