"""SavedModels: their export, self-test and HTTP server."""
