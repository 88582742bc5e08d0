"""The importance of each attention head, and pruning of the least important ones."""

MEASUREMENTS = "measurements.jsonl"
