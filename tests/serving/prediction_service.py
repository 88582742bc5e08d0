"""TF Serving's PredictionService, with its real protos, on our session."""

from concurrent import futures
from pathlib import Path

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc

from tf_transformer.export.session import SavedModelSession
from tf_transformer.export.warmup import FILE


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Replays the warm-up file of BASE/VERSION, then answers Predict."""

    def __init__(self, folder: Path, session: SavedModelSession) -> None:
        self.name = folder.parent.name
        self.session = session
        self.warm = 0
        for record in tf.data.TFRecordDataset(str(folder / FILE)):
            log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
            self._run(log.predict_log.request)
            self.warm += 1

    def Predict(self, request, context):  # noqa: N802, the name in the proto
        if request.model_spec.name != self.name:
            context.abort(grpc.StatusCode.NOT_FOUND, request.model_spec.name)
        return self._run(request)

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
