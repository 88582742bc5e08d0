"""SavedModels and their signatures, tested before they are published, and LiteRT files."""
