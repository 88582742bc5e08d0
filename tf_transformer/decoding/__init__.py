"""Beam search and text-to-text translation."""
