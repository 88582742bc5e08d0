"""Programs for the developers of tf_transformer; the package does not import them."""
