"""Table 3 of the paper as an experiment: its rows at a scale, their results, the table."""
