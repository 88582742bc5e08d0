"""Commands that measure models against the paper."""
