"""From a path to a translator or a model: runs, exports and .keras files."""
