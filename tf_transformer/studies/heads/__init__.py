"""The importance of each attention head, and models without the least important ones."""

MEASUREMENTS = "measurements.jsonl"
