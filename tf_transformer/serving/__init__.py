"""An HTTP server for SavedModels."""
