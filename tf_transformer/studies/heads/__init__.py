"""The importance of attention heads, and pruning of the least important ones."""

MEASUREMENTS = "measurements.jsonl"
