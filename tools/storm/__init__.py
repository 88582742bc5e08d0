"""Breaks the commands on purpose and counts kept promises; see docs/results/reliability.md."""
