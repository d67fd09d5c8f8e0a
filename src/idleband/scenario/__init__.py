"""What the world is."""
