"""Export of SavedModels, their self-test, and an HTTP server for them."""
