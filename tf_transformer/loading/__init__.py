"""From a path to what translates, parses or classifies: runs, exports and .keras files."""
