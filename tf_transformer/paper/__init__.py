"""Experiments of the paper: Table 3 scaled down, the importance of heads, lengths."""
