"""Table 3 of the paper, scaled down and trained on the user's data, beside the paper's."""
