"""TF Serving's PredictionService, with its real protos, on our session.

It puts requests, answers and errors to the test, but not the server's binary.
"""

from concurrent import futures
from pathlib import Path

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc

from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.warmup import FILE

Code = grpc.StatusCode


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Replays the warm-up file of BASE/VERSION, then answers Predict.

    The next `busy` calls are answered with UNAVAILABLE.
    """

    def __init__(self, folder: Path, session: SavedModelSession) -> None:
        self.name = folder.parent.name
        self.session = session
        self.warm = self.busy = 0
        for record in tf.data.TFRecordDataset(str(folder / FILE)):
            log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
            self._run(log.predict_log.request)
            self.warm += 1

    def Predict(self, request, context):  # noqa: N802, the name in the proto
        if self.busy:
            self.busy -= 1
            context.abort(Code.UNAVAILABLE, "the queue is full")
        if request.model_spec.name != self.name:
            context.abort(Code.NOT_FOUND, f"Servable not found: {request.model_spec.name}")
        signature = request.model_spec.signature_name or "serving_default"
        if signature not in self.session.signatures:
            context.abort(Code.FAILED_PRECONDITION, f'signature key "{signature}" not found.')
        definition = self.session.signatures[signature]
        if set(request.inputs) != set(definition.inputs):
            context.abort(Code.INVALID_ARGUMENT, "input size does not match signature")
        for name, tensor in request.inputs.items():
            if tensor.dtype != definition.inputs[name].dtype:
                context.abort(Code.INVALID_ARGUMENT, f"wrong type of input {name}")
        try:
            return self._run(request)
        except ValueError as error:
            context.abort(Code.INVALID_ARGUMENT, str(error))

    def _run(self, request):
        signature = request.model_spec.signature_name or "serving_default"
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        outputs = self.session.run(signature, inputs, list(request.output_filter))
        for name, values in outputs.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values, shape=values.shape))
        return response


def start(
    folder: Path, session: SavedModelSession
) -> tuple[grpc.Server, PredictionService, int]:
    """A running server, its service and its port."""
    server = grpc.server(futures.ThreadPoolExecutor(8))
    service = PredictionService(folder, session)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, service, port
