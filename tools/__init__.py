"""Programs for the people who work on tf_transformer; the package knows nothing of them."""
