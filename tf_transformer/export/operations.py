"""Refuses SavedModels that may do more than compute and restore their own weights.

TensorFlow runs any operation of a SavedModel, also those that read and write files.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tf_transformer.base.errors import UserError, shortened

# Those of exports that work on texts, variables and functions, and not on numbers alone.
_HARMLESS = frozenset(
    """Assert AssignVariableOp DisableCopyOnRead Einsum If PartitionedCall RaggedTensorToTensor
    ReadVariableOp ResourceGather SentencepieceDetokenizeOp SentencepieceIdToStringOp
    SentencepieceOp SentencepieceTokenizeOp ShardedFilename StatefulPartitionedCall
    StaticRegexFullMatch StaticRegexReplace StringJoin TensorScatterUpdate VarHandleOp
    While _QuantizedMatMul""".split()  # noqa: SIM905
)
_OF_FILES = frozenset(("MergeV2Checkpoints", "RestoreV2", "SaveV2"))
_NOT_NUMBERS = frozenset(t.as_datatype_enum for t in (tf.string, tf.resource, tf.variant))


def check_operations(path: Path) -> None:
    """Raises UserError if a SavedModel has operations that may do more than compute.

    Any operation may turn numbers into numbers; all others must be those of exports.
    """
    try:
        graphs = SavedModel.FromString(Path(path, "saved_model.pb").read_bytes()).meta_graphs
    except (OSError, DecodeError) as error:  # TensorFlow might read another file instead
        raise UserError(f"{path} holds no SavedModel that can be loaded: {error}.") from None
    if found := sorted({name for graph in graphs for name in _refused(graph)}):
        raise UserError(
            f"{path} is not loaded: it has operations that no export of this package has, and "
            f"that may act on files: {shortened(', '.join(found), 200)}."
        )


def _refused(graph: MetaGraphDef) -> Iterator[str]:
    """Yields the names of operations and functions that a graph may not use."""
    library = {each.signature.name: each for each in graph.graph_def.library.function}
    bodies = [graph.graph_def.node, *(function.node_def for function in library.values())]
    nodes = [node for body in bodies for node in body]
    values = (value for node in nodes for value in node.attr.values())
    callable = (value for value in values if value.WhichOneof("value") in ("func", "list"))
    calls = Counter(f.name for value in callable for f in (value.func, *value.list.func))
    calls.update(node.op for node in nodes if node.op in library)
    registry = tf.Graph()
    others = {node.op for node in nodes} - _HARMLESS - _OF_FILES - library.keys()
    yield from (name for name in others if not _is_numeric(name, registry))
    yield from calls.keys() - library.keys() - {""}
    restore, owned = _of_loader(graph)
    yield from (node.op for node in graph.graph_def.node if node.op in _OF_FILES)
    for name, function in library.items():
        argument = next((each.name for each in function.signature.input_arg), "")
        for node in function.node_def:
            reads = node.op == "RestoreV2" and node.input[0] == argument
            is_owned = name in owned and calls[name] == 1 and (reads or name != restore)
            if node.op in _OF_FILES and not is_owned:
                yield node.op


def _is_numeric(name: str, registry: tf.Graph) -> bool:
    """Tells whether an operation has no state, and takes and returns no text or resource."""
    try:
        operation = registry.op_def_for_type(name)
    except tf.errors.OpError:  # TensorFlow does not know it
        return False
    types = {argument.type for argument in (*operation.input_arg, *operation.output_arg)}
    texts = [a for a in operation.attr if a.type in ("string", "list(string)")]
    free = any(not text.allowed_values.list.s for text in texts)  # it could name a file
    return not (operation.is_stateful or free or types & _NOT_NUMBERS)


def _of_loader(graph: MetaGraphDef) -> tuple[str, set[str]]:
    """Returns the function that restores weights, and it with the one that saves them.

    TensorFlow's loader feeds their file to a placeholder; they count only if none else can.
    """
    main, saver = {node.name: node for node in graph.graph_def.node}, graph.saver_def
    inputs = [info for s in graph.signature_def.values() for info in s.inputs.values()]
    fed = {info.name.split(":")[0] for info in inputs}
    names = (saver.filename_tensor_name, saver.save_tensor_name, saver.restore_op_name)
    file, *ends = (main.get(name.split(":")[0], NodeDef()) for name in names)
    functions = [end.attr["f"].func.name for end in ends]
    only = file.op == "Placeholder" and file.name not in fed
    only = only and all(end.input[:1] == [file.name] for end in ends)
    return functions[1], {*functions} if only else set()
