"""Names of 1.1.0 that are gone, and the experiments of the repository that follow them."""

# Values of the settings `task` and `training.best_by`, which files of 1.1.0 may hold.
TASKS = {"parsing": "parsing", "classification": "classification"}
SCORES = {"f1": "parsing", "accuracy": "classification"}
COMMANDS = {
    "ablate": "table3", "classify": "classification", "draw": "parsing", "heads": "heads",
    "lengths": "lengths", "parse": "parsing",
}  # fmt: skip
CLASSES = {
    "Classifier": "classification", "Parser": "parsing", "SentenceClassifier": "classification",
}  # fmt: skip
_PRESETS = {"table3-": "table3", "parsing-": "parsing", "classification-": "classification"}


def gone(what: str, experiment: str) -> str:
    """Returns the line that says which version has `what`, and where its successor is."""
    return (
        f"{what} needs tf-transformer 1.1.0: this version translates. In its repository, "
        f"experiments/{experiment} has the successor."
    )


def experiment_of_preset(name: str) -> str:
    """Returns the experiment with the settings of a preset that is gone; "" for any other."""
    return next((found for start, found in _PRESETS.items() if name.startswith(start)), "")
