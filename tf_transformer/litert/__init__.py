"""LiteRT: the file of a model, the search in NumPy around its step, engine, export."""
