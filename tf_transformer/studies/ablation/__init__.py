"""Table 3 of the paper, trained at a scale on the user's data."""
