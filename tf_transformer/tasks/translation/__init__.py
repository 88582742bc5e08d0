"""Translation of text: the task, the translator, tuning of its search, synthetic pairs."""
