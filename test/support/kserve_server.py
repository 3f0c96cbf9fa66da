"""
A small inference server: the KServe V2 protocol over gRPC, ONNX Runtime behind it.

It serves a model repository of Triton as `trt-ros triton` writes it, with Triton's extensions that
trt_ros uses: ModelConfig and system shared memory. Run as a program, it prints its port when it is
ready.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor
import json
import mmap
import os
from pathlib import Path
import subprocess
import sys

from google.protobuf import text_format
import grpc
import numpy as np
import onnxruntime
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

DATATYPES = {
    'tensor(float)': 'FP32',
    'tensor(float16)': 'FP16',
    'tensor(uint8)': 'UINT8',
    'tensor(int64)': 'INT64',
    'tensor(int32)': 'INT32',
    'tensor(bool)': 'BOOL',
}
ARRAYS = {'FP32': 'f4', 'FP16': 'f2', 'UINT8': 'u1', 'INT64': 'i8', 'INT32': 'i4', 'BOOL': '?'}


def _short(reply) -> None:
    reply.raw_output_contents[0] = reply.raw_output_contents[0][:-1]


def _set_shape(*shape):
    def change(reply) -> None:
        reply.outputs[0].shape[:] = shape

    return change


def _twice_negative(reply) -> None:
    first, second, *rest = reply.outputs[0].shape
    reply.outputs[0].shape[:] = [-first, -second, *rest]


def _typed(datatype, field, values):
    def change(reply) -> None:
        del reply.raw_output_contents[:]
        reply.outputs[0].datatype = datatype
        getattr(reply.outputs[0].contents, field).extend(values)

    return change


#: Replies that no model has, by the value of --reply.
REPLIES = {
    'one byte less': _short,
    'no outputs': lambda reply: reply.ClearField('outputs'),
    'another name': lambda reply: setattr(reply.outputs[0], 'name', 'other'),
    'another type': lambda reply: setattr(reply.outputs[0], 'datatype', 'BYTES'),
    'a negative shape': _set_shape(-1),
    'a shape of two negative sizes': _twice_negative,
    'the smallest shape': _set_shape(-(2**63), -(2**63)),
    'the largest shape': _set_shape(2**63 - 1, 2**63 - 1),
    'a shape of 100 sizes': _set_shape(*[1] * 100),
    'a value beyond its type': _typed('UINT8', 'uint_contents', [300]),
    'no values': _typed('FP32', 'fp32_contents', []),
    'one dimension': _set_shape(7 * 84),
}


class _AtPort:
    port = 0

    def address(self, name: str, scheme: str = 'grpc') -> str:
        return f'{scheme}://localhost:{self.port}/{name}'

    def __enter__(self) -> _AtPort:
        return self


class ServerThread(_AtPort):
    """The server in threads of this process, which starts at once."""

    def __init__(self, repository: Path, *arguments: str) -> None:
        self._server, self.port = started([str(repository), *arguments])

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()


class ServerProcess(_AtPort):
    """The server in a process of its own, which can be killed and started again."""

    def __init__(self, repository: Path, *arguments: str) -> None:
        self._command = [sys.executable, __file__, str(repository), *arguments]
        self.start()

    def start(self) -> None:
        """Start it, at the same port as before."""
        self.process = subprocess.Popen(
            [*self._command, '--port', str(self.port)], stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


class Model:
    def __init__(self, config_path: Path) -> None:
        text = config_path.read_text()
        self.config = text_format.Parse(text, model_config_pb2.ModelConfig())
        folder = max(config_path.parent.glob('[0-9]*'))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            folder / self.config.default_model_filename, options
        )

    def describe(self, reply) -> None:
        for described, nodes in (
            (reply.inputs, self.session.get_inputs()),
            (reply.outputs, self.session.get_outputs()),
        ):
            for node in nodes:
                shape = [size if isinstance(size, int) else -1 for size in node.shape]
                described.add(name=node.name, datatype=DATATYPES[node.type], shape=shape)

    def run(self, names, tensors, reply, *, has_typed_contents: bool) -> None:
        types = {node.name: DATATYPES[node.type] for node in self.session.get_outputs()}
        for name, output in zip(names, self.session.run(names, tensors)):
            added = reply.outputs.add(name=name, datatype=types[name], shape=output.shape)
            if has_typed_contents and types[name] == 'FP32':
                added.contents.fp32_contents.extend(output.reshape(-1).tolist())
            else:
                reply.raw_output_contents.append(output.tobytes())


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    """
    The methods of the protocol.

    :param options: of the command line, see `started`.
    """

    def __init__(self, models: dict[str, Model], options: Namespace) -> None:
        self._models, self._options = models, options
        self._regions: dict[str, mmap.mmap] = {}

    def _model(self, name, context) -> Model:
        given = dict(context.invocation_metadata()).get('authorization')
        if self._options.token and given != f'Bearer {self._options.token}':
            context.abort(grpc.StatusCode.UNAUTHENTICATED, 'invalid token')
        if name not in self._models:
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model: '{name}'")
        return self._models[name]

    def _refuse_if_plain(self, context) -> None:
        if self._options.plain:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, 'no extension')

    def ModelMetadata(self, request, context):
        reply = service_pb2.ModelMetadataResponse(name=request.name)
        self._model(request.name, context).describe(reply)
        for mode, shape in self._options.shapes.items():
            getattr(reply, mode)[0].shape[:] = shape
        return reply

    def ModelConfig(self, request, context):
        self._refuse_if_plain(context)
        return service_pb2.ModelConfigResponse(config=self._model(request.name, context).config)

    def SystemSharedMemoryRegister(self, request, context):
        self._refuse_if_plain(context)
        if self._options.forgetful:
            return service_pb2.SystemSharedMemoryRegisterResponse()
        descriptor = os.open(f'/dev/shm{request.key}', os.O_RDWR)
        self._regions[request.name] = mmap.mmap(descriptor, request.byte_size)
        os.close(descriptor)
        return service_pb2.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request, context):
        self._regions.pop(request.name, None)
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    def ModelInfer(self, request, context):
        model = self._model(request.model_name, context)
        raw = iter(request.raw_input_contents)
        tensors = {each.name: self._read(each, raw, context) for each in request.inputs}
        limit = model.config.max_batch_size
        if limit and any(len(tensor) > limit for tensor in tensors.values()):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f'inference request batch-size must be <= {limit}',
            )
        reply = service_pb2.ModelInferResponse(model_name=request.model_name)
        names = [each.name for each in request.outputs]
        try:
            model.run(names, tensors, reply, has_typed_contents=self._options.typed)
        except Exception as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))
        if self._options.reply:
            REPLIES[self._options.reply](reply)
        return reply

    def _read(self, described, raw, context) -> np.ndarray:
        parameters = described.parameters
        if 'shared_memory_region' in parameters:
            name = parameters['shared_memory_region'].string_param
            if name not in self._regions:
                context.abort(
                    grpc.StatusCode.NOT_FOUND, f"Unable to find shared memory region: '{name}'"
                )
            begin = parameters['shared_memory_offset'].int64_param
            end = begin + parameters['shared_memory_byte_size'].int64_param
            data = self._regions[name][begin:end]
        else:
            data = next(raw)
        return np.frombuffer(data, ARRAYS[described.datatype]).reshape(described.shape)


def started(words: list[str]) -> tuple[grpc.Server, int]:
    """Start a server as its command line says; return it and its port."""
    parser = ArgumentParser()
    parser.add_argument('repository', type=Path)
    parser.add_argument('--port', type=int, default=0)
    parser.add_argument('--plain', action='store_true', help='without extensions of Triton')
    parser.add_argument('--typed', action='store_true', help='float32 outputs as numbers')
    parser.add_argument('--token', default='', help='bearer token that each request must have')
    parser.add_argument('--forgetful', action='store_true', help='without regions of memory')
    parser.add_argument('--reply', choices=REPLIES, help='what is wrong with each reply of a run')
    parser.add_argument(
        '--shapes', type=json.loads, default={}, help="of the first of 'inputs' and 'outputs'"
    )
    parser.add_argument('--certificate', type=Path)
    parser.add_argument('--key', type=Path)
    arguments = parser.parse_args(words)
    models = map(Model, arguments.repository.glob('*/config.pbtxt'))
    service = Service({model.config.name: model for model in models}, arguments)
    unlimited = [('grpc.max_receive_message_length', -1), ('grpc.max_send_message_length', -1)]
    server = grpc.server(ThreadPoolExecutor(4), options=unlimited)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    address = f'localhost:{arguments.port}'
    if arguments.certificate:
        pair = (arguments.key.read_bytes(), arguments.certificate.read_bytes())
        port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        port = server.add_insecure_port(address)
    server.start()
    return server, port


if __name__ == '__main__':
    server, port = started(sys.argv[1:])
    print(port, flush=True)
    server.wait_for_termination()
