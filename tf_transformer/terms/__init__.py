"""Spans and terms that a translation keeps: found, slots for them, and slots in training."""
