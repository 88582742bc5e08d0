"""Translation of text: translator, documents, made pairs, the task that is trained."""
