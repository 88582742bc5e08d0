"""Matrix products with int8 weights and inputs rounded to int8, by an operation of oneDNN.

Weights have a scale for each column, inputs one for each row, so no row depends on another.
The sums are exact integers; `plain_product` is the same in NumPy, and tests compare the two.
D inner size, N columns, M rows.

Inputs are rounded to -127 to 127, weights to -64 to 64. Without VNNI or AMX a processor adds
128 to inputs and sums pairs of products in 16 bits: 2 x 255 x 64 is the largest that fits
(https://uxlfoundation.github.io/oneDNN, "Nuances of int8 Computations").
"""

import functools
import math

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library

from tf_transformer.base.errors import UserError
from tf_transformer.fast.keras_hooks import sublayers, unlocked
from tf_transformer.fast.projections import QuantizedKernel

INT8_PRODUCT = "_QuantizedMatMul"  # the operation, whose name is private
_LEVELS, _WEIGHT_LEVELS = np.float32(127), np.float32(64)
_WRONG = (
    "Products in int8 are wrong on this machine: one with a known answer was computed first. "
    "Export the model in float32, or in int8 for LiteRT, which is exact on every processor."
)
_ATTRIBUTES = ("_kernel", "kernel", "embeddings")  # where layers keep what is multiplied


class Int8Kernel(QuantizedKernel):
    """A kernel [D, N] in int8; takes the place of a layer's variable.

    Args:
        values: int8 [N, D], the rounded columns, from -64 to 64; a variable or a tensor.
        units: float32 [N], what 1 stands for in each column.
    """

    dtype = "float32"  # of inputs and products

    def __init__(self, values, units):
        self.values, self.units = values, units
        self.shape = (values.shape[1], values.shape[0])

    def multiply(self, x):
        """Returns x @ kernel, float32 [M, D] -> [M, N]."""
        if tf.executing_eagerly():  # the operation needs a graph
            return self._in_graph(x)
        largest = tf.reduce_max(tf.abs(x), axis=-1, keepdims=True)  # 127 stands for it
        levels = tf.cast(tf.round(x * tf.math.divide_no_nan(_LEVELS, largest)), tf.int8)
        return _quantized_product(levels, self.values, self.units) * largest

    @functools.cached_property
    def _in_graph(self):
        return tf.function(self.multiply, autograph=False, reduce_retracing=True)

    def __array__(self, *_, **__):  # for all other ways of saving
        _refuse_to_save()

    def rows(self, ids):
        """Returns the columns with these numbers in float32: [...] -> [..., D]."""
        units = tf.gather(self.units, ids)[..., tf.newaxis]
        return tf.cast(tf.gather(self.values, ids), tf.float32) * units

    def join(self, others):
        """Returns this kernel and others with the same D as one, columns side by side."""
        parts = [self, *others]
        values = tf.concat([part.values for part in parts], axis=0)
        return Int8Kernel(values, tf.concat([part.units for part in parts], axis=0))


def _quantized_product(rows, columns, units):
    """Returns the sums over D of int8 [M, D] times int8 [N, D], times `units` / 127, [M, N].

    The operation keeps a packed copy of the columns from its first call on. Unlike
    `tf.raw_ops.QuantizedMatMulWithBias` it takes them from a variable, of which a SavedModel
    holds one copy, and scales them column by column.
    """
    rows, columns = (tf.bitcast(each, tf.qint8) for each in (rows, columns))
    # Bounds of rows and columns, of which the larger absolute counts; the last two are unused.
    bounds = [-_LEVELS, _LEVELS, units, units, 0.0, 0.0]
    *_, operation, _ = op_def_library._apply_op_helper(
        INT8_PRODUCT,
        name="int8_product",
        device_inputs=[rows, columns, tf.zeros(columns.shape[:1])],
        host_inputs=[tf.convert_to_tensor(each, tf.float32) for each in bounds],
        Tdevice_outputs=[tf.float32],
        Thost_outputs=[],
        T1=tf.qint8,
        T2=tf.qint8,
        Tbias=tf.float32,
        U=tf.float32,
        Tout=tf.float32,
        transpose_a=False,
        transpose_b=True,
        is_weight_const=True,
        is_bias_const=True,
        fused_ops=["BiasAdd", "Dequantize"],
        input_quant_mode="SCALED",
        output_quant_mode="SCALED",
        leakyrelu_alpha=0.2,
    )
    (product,) = operation.outputs
    product.set_shape([rows.shape[0], columns.shape[0]])
    return product


def plain_product(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Returns, in NumPy, `Int8Kernel.multiply` of x [M, D] and a kernel [D, N], float32."""
    values, units = rounded_columns(kernel)
    largest = np.abs(x).max(axis=-1, keepdims=True)
    inverse = np.divide(_LEVELS, largest, out=np.zeros_like(largest), where=largest > 0)
    sums = np.rint(x * inverse).astype(np.int32) @ values.T.astype(np.int32)
    return sums.astype(np.float32) * (units / _LEVELS) * largest


def rounded_columns(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values and units of a float32 kernel [D, N]; see `Int8Kernel`."""
    units = np.abs(kernel).max(axis=0) / _WEIGHT_LEVELS
    values = np.rint(kernel / np.where(units > 0, units, 1)).astype(np.int8)
    return np.ascontiguousarray(values.T), units


def to_int8(model: keras.Model) -> None:
    """Replaces kernels and embeddings of a trained model in float32 by int8, for inference.

    What is no layer of this package stays in float32, such as a classifier's output.
    """
    for layer in sublayers(model, recursive=True):
        if type(layer) is keras.layers.Dense:
            continue
        for name in _ATTRIBUTES:
            variable = vars(layer).get(name)
            if isinstance(variable, keras.Variable):
                weights = keras.ops.convert_to_numpy(variable)
                values, units = rounded_columns(weights.T if name == "embeddings" else weights)
                with unlocked(layer, variable):
                    layer.int8_values = _variable(values, "int8_values")
                    layer.int8_units = _variable(units, "int8_units")
                setattr(layer, name, Int8Kernel(layer.int8_values, layer.int8_units))
    model.save = _refuse_to_save  # before Keras empties the file


def _refuse_to_save(*_, **__):
    raise UserError("Keras saves no model in int8: save it in float32, or export it.")


def _variable(array: np.ndarray, name: str) -> keras.Variable:
    return keras.Variable(array, trainable=False, dtype=array.dtype, name=name)


def parameters(model: keras.Model) -> int:
    """Returns the number of a model's parameters, among which the units of int8 are not."""
    return sum(math.prod(w.shape) for w in model.weights if w.name != "int8_units")


def is_int8(model: keras.Model) -> bool:
    """Returns whether `to_int8` has changed a model."""
    return any(hasattr(layer, "int8_values") for layer in sublayers(model, recursive=True))


class KnownProduct(tf.Module):
    """A product of the largest values; of variables, so that no graph holds its answer."""

    def __init__(self):
        super().__init__()
        self._inputs = np.ones([1, 64], np.float32)
        self._weights = [tf.Variable(part) for part in rounded_columns(self._inputs.T)]

    def is_right(self) -> tf.Tensor:
        """Returns whether it is computed exactly, a boolean."""
        found = Int8Kernel(*self._weights).multiply(tf.constant(self._inputs))
        return tf.reduce_all(found == plain_product(self._inputs, self._inputs.T))

    def guard(self, function: tf.types.experimental.PolymorphicFunction) -> tf.function:
        """Returns the function with the product before it: if it is wrong, each call fails."""

        def guarded(*inputs):
            with tf.control_dependencies([tf.debugging.Assert(self.is_right(), [_WRONG])]):
                return tf.nest.map_structure(tf.identity, function(*inputs))

        return tf.function(guarded, input_signature=function.input_signature, autograph=False)


@functools.cache
def int8_works() -> bool:
    """Returns whether this TensorFlow multiplies int8 exactly: tries a product once.

    Without oneDNN, as on processors other than x86, there is no such operation.
    """
    try:
        return bool(KnownProduct().is_right())
    except (tf.errors.OpError, TypeError, ValueError):
        return False
