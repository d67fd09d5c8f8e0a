"""Text, tables and figures made from results."""
