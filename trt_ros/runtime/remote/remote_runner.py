"""Networks that an inference server runs: Triton, or another with the KServe V2 protocol."""

from collections.abc import Mapping
from contextlib import suppress
import math
import threading
from typing import Any

import numpy as np

from trt_ros.errors import (
    ModelError,
    RemoteRefusedError,
    RemoteUnavailableError,
    TensorMismatchError,
    TrtRosError,
)
from trt_ros.progress import Reporter
from trt_ros.runtime.remote.address import ModelAddress
from trt_ros.runtime.remote.connection import (
    Connection,
    NotOnServerError,
    SharedInputs,
    region_nbytes,
)
from trt_ros.runtime.runner import Runner, check_inputs, tensor_specs
from trt_ros.tensors import INTEGERS, Arrays, TensorSpec, numpy_dtype, refuse_large

OPEN_SECONDS, CLOSE_SECONDS = 10.0, 1.0  # Timeouts of requests beside runs.
FIRST_RUN_SECONDS = 120.0  # A server may load or compile the model at its first run.
MAX_REGION_FAILURES = 3  # Then inputs go through gRPC.

DTYPES = {
    'BOOL': 'bool',
    'BF16': 'bfloat16',
    'FP16': 'float16',
    'FP32': 'float32',
    'FP64': 'float64',
    **{name.upper(): name for name in INTEGERS},
}
DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}
#: Field of a tensor's contents by datatype, in replies without raw contents.
_CONTENTS = {
    'BOOL': 'bool_contents',
    'FP32': 'fp32_contents',
    'FP64': 'fp64_contents',
    'INT64': 'int64_contents',
    'UINT64': 'uint64_contents',
    **dict.fromkeys(('INT8', 'INT16', 'INT32'), 'int_contents'),
    **dict.fromkeys(('UINT8', 'UINT16', 'UINT32'), 'uint_contents'),
}


class RemoteRunner(Runner):
    """
    A model of an inference server. Owns the connection; the arrays it returns stay valid.

    Runs from several threads overlap. On the same host, inputs go through shared memory if the
    server can open it, else through gRPC.

    :param timeout_seconds: of a run after the first one.
    :param ca_path, token_path: as for Connection; so are the errors.
    :param report: cancels the first run.
    :ivar max_batch: maximum batch size of the model; 0 if it is unknown or unlimited.
    :ivar in_flight: wanted number of runs at a time.
    """

    backend = 'triton'
    overlaps = True

    def __init__(
        self,
        address: ModelAddress,
        *,
        timeout_seconds: float,
        ca_path: str = '',
        token_path: str = '',
        in_flight: int = 1,
        report: Reporter | None = None,
    ) -> None:
        self._connection = Connection(address, ca_path, token_path)
        self._timeout_seconds, self.in_flight = timeout_seconds, in_flight
        self._report: Reporter | None = report or Reporter()
        self._lock = threading.Lock()
        self._idle: list[SharedInputs] = []
        self._region_failures = 0  # One after the other.
        self._shares_memory = address.is_this_host
        self._failed_requests, self._problem = 0, ''
        try:
            self.metadata, self.max_batch = self._read_config()
            self.inputs, self.outputs = self._read_specs()
        except BaseException:
            self._connection.close()
            raise

    def _read_specs(self) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        address = self._connection.address
        reply = self._connection.call(
            'ModelMetadata', OPEN_SECONDS, self._report, name=address.name, version=address.version
        )
        inputs = tensor_specs(reply.inputs, 'datatype', DTYPES, 'input', address)
        outputs = tensor_specs(reply.outputs, 'datatype', DTYPES, 'output', address)
        if not inputs or not outputs:
            raise ModelError(
                f'{address} has no {"outputs" if inputs else "inputs"}.',
                cause='The server does not describe the tensors of the model.',
                remedy='Configure inputs and outputs of the model on the server.',
            )
        refuse_large(inputs)
        return inputs, outputs

    def _read_config(self) -> tuple[Mapping[str, str], int]:
        """Return the text parameters of the model's configuration, and its maximum batch size."""
        address = self._connection.address
        about = {'name': address.name, 'version': address.version}
        try:
            reply = self._connection.call('ModelConfig', OPEN_SECONDS, self._report, **about)
        except RemoteRefusedError:  # An extension of Triton, which other servers lack.
            return {}, 0
        parameters = reply.config.parameters.items()
        return {key: value.string_value for key, value in parameters}, reply.config.max_batch_size

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        """Run the network once; raise RemoteUnavailableError or RemoteRefusedError."""
        check_inputs(self.inputs, tensors)
        try:
            outputs = self._run(tensors)
        except (RemoteUnavailableError, RemoteRefusedError) as error:
            with self._lock:
                self._failed_requests += 1
                self._problem = error.problem
            raise
        self._report, self._problem = None, ''
        return outputs

    def _run(self, tensors: Arrays) -> dict[str, np.ndarray]:
        shared = self._take_region(region_nbytes(tensors))
        if shared is None:
            return self._outputs(self._send(tensors))
        try:
            reply = self._send(tensors, shared)
        except (NotOnServerError, RemoteRefusedError):
            # A server that has restarted knows no region any more; this frame is still in time.
            shared.close()
            self._close_regions()
            outputs = self._outputs(self._send(tensors))
            self._region_failures += 1
            return outputs
        except BaseException:
            self._give_region(shared)
            raise
        self._region_failures = 0
        self._give_region(shared)
        return self._outputs(reply)

    def _send(self, tensors: Arrays, shared: SharedInputs | None = None) -> Any:
        seconds = self._timeout_seconds
        if self._report is not None:
            seconds = max(FIRST_RUN_SECONDS, seconds)
        placed = shared.write(tensors) if shared is not None else {}
        inputs, raw = [], []
        for spec in self.inputs:
            tensor = tensors[spec.name]
            described: dict[str, Any] = {
                'name': spec.name,
                'datatype': DATATYPES[spec.dtype],
                'shape': tensor.shape,
            }
            if shared is None:
                raw.append(tensor.tobytes())
            else:
                offset, nbytes = placed[spec.name]
                described['parameters'] = {
                    'shared_memory_region': {'string_param': shared.name},
                    'shared_memory_offset': {'int64_param': offset},
                    'shared_memory_byte_size': {'int64_param': nbytes},
                }
            inputs.append(described)
        return self._connection.call(
            'ModelInfer',
            seconds,
            self._report,
            model_name=self._connection.address.name,
            model_version=self._connection.address.version,
            inputs=inputs,
            outputs=[{'name': spec.name} for spec in self.outputs],
            raw_input_contents=raw,
        )

    def _outputs(self, reply: Any) -> dict[str, np.ndarray]:
        """Return a reply's outputs; raises TensorMismatchError if one does not fit its spec."""
        described = {each.name: number for number, each in enumerate(reply.outputs)}
        outputs = {}
        for spec in self.outputs:
            number = described.get(spec.name)
            tensor = None
            if number is not None:
                tensor = _to_array(reply.outputs[number], number, reply.raw_output_contents)
            if tensor is None or not spec.accepts(tensor):
                raise TensorMismatchError(
                    f'{self._connection.address} did not return {spec}.',
                    cause='' if tensor is None else f'It returned {tensor.shape} {tensor.dtype}.',
                    remedy='Configure the node again if the model on the server was replaced.',
                )
            outputs[spec.name] = tensor
        return outputs

    def _take_region(self, nbytes: int) -> SharedInputs | None:
        """Return a registered region; None where the server cannot use shared memory."""
        if not self._shares_memory or self._region_failures >= MAX_REGION_FAILURES or not nbytes:
            return None
        with self._lock:
            region = self._idle.pop() if self._idle else None
        if region is not None:
            if region.nbytes >= nbytes:
                return region
            self._close_region(region)
        try:
            region = SharedInputs(nbytes)
        except OSError:  # /dev/shm is full or missing.
            self._shares_memory = False
            return None
        try:
            self._connection.call(
                'SystemSharedMemoryRegister',
                OPEN_SECONDS,
                self._report,
                name=region.name,
                key=region.key,
                byte_size=nbytes,
            )
        except (NotOnServerError, RemoteRefusedError):
            # The server is in a container of its own, of another user, or lacks the extension.
            region.close()
            self._shares_memory = False
            return None
        except BaseException:
            region.close()
            raise
        region.unlink()
        return region

    def _give_region(self, region: SharedInputs) -> None:
        with self._lock:
            self._idle.append(region)

    def _close_regions(self) -> None:
        with self._lock:
            regions, self._idle = self._idle, []
        for region in regions:
            self._close_region(region)

    def _close_region(self, region: SharedInputs) -> None:
        region.close()
        with suppress(TrtRosError):  # A server that does not answer has no region.
            self._connection.call('SystemSharedMemoryUnregister', CLOSE_SECONDS, name=region.name)

    def diagnostics(self) -> dict[str, str]:
        is_shared = self._shares_memory and self._region_failures < MAX_REGION_FAILURES
        return {
            'server': str(self._connection.address),
            'server state': self._problem or 'ready',
            'server requests failed': str(self._failed_requests),
            'server inputs': 'shared memory' if is_shared else 'gRPC',
        }

    def close(self) -> None:
        self._close_regions()
        self._connection.close()


def _to_array(described: Any, number: int, raw: Any) -> np.ndarray | None:
    """Return a tensor of a reply, also from its typed contents; None if it has another size."""
    dtype, shape = DTYPES.get(described.datatype, ''), tuple(described.shape)
    try:
        if number < len(raw):
            if not dtype:
                return None
            values = np.frombuffer(bytearray(raw[number]), numpy_dtype(dtype))
        elif described.datatype in _CONTENTS:
            field = getattr(described.contents, _CONTENTS[described.datatype])
            values = np.array(field, numpy_dtype(dtype))
        else:
            return None
        return values.reshape(shape) if math.prod(shape) == values.size else None
    except (ValueError, OverflowError):  # Half a value, negative sizes, values beyond the type.
        return None
