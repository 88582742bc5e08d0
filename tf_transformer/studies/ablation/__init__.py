"""Table 3 of the paper, or other rows, trained on the data of the user."""
