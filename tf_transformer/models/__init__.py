"""The Keras models built from the layers."""
