"""Translation of text: the task, the translator, synthetic pairs."""
