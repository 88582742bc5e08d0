"""Parser that runs an exported SavedModel, for users."""

from pathlib import Path

from tf_transformer.decoding.batches import Progress
from tf_transformer.serving.exported import ExportedModel, column, needs_run
from tf_transformer.tasks.parsing.base import BaseParser
from tf_transformer.tasks.parsing.linearisation import Parse
from tf_transformer.tasks.parsing.trees import read_line


class ExportedParser(BaseParser):
    """Parses with an exported SavedModel, without Keras.

    Args:
        path: the folder of the SavedModel.

    Raises:
        UserError: if it cannot be loaded, or is not a parser.
    """

    attention = needs_run("show attention")
    export = needs_run("be exported")
    score = needs_run("score")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._model = ExportedModel(path, "tree")

    def _parse(self, sentences: list[list[str]], progress: Progress | None) -> list[Parse]:
        if not sentences:
            return []
        parses = []
        rows = {"text": column([" ".join(words) for words in sentences])}
        for answer in self._model.answers("serving_default", rows, progress):
            columns = answer["tree"], answer["repairs"].tolist(), answer["cut"].tolist()
            for text, repairs, cut in zip(*columns, strict=True):
                tree = read_line(text.decode())
                parses.append(Parse(tree[0] if tree else None, repairs, cut))
        return parses
