"""Engines and their interface: search, sampling, forced scoring, text and ids."""
