"""The grammar behind the built-in corpus; the package holds only its sentences."""
