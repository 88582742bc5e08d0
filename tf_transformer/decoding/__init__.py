"""Beam search, sampling and forced scoring; text-to-text translation built on them."""
