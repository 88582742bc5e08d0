"""Quality of translations by the length of the sentence."""
