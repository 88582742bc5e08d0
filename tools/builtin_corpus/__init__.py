"""The grammar behind the built-in corpus; the package holds only the sentences it made."""
