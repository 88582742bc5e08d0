"""Faster forms of layers and operations, each held equal to its plain twin by a test."""
