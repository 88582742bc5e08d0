"""What translates, and its interface: search, sampling, forced scoring, text and ids."""
