"""Breaks the commands on purpose and counts what held; see docs/results/reliability.md."""
