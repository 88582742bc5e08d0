"""The questions of the paper and about it: ablation, heads, lengths, costs, departures."""
