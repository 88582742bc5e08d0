"""Breaks the commands on purpose, again and again, and counts what held (docs/reliability.md)."""
