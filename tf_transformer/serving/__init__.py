"""The SavedModel and what serves it."""
