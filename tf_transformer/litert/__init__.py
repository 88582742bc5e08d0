"""LiteRT: its file of a model, the search around its step, exports and served searches."""
