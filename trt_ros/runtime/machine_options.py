"""Options of a pipeline: engine, backend and GPU, and the runs on them."""

from dataclasses import dataclass

from trt_ros.parameter_field import param

# Repeated here because their own modules import NumPy; a test keeps them equal.
BACKENDS = ('auto', 'tensorrt', 'tensorrt_rtx', 'onnxruntime', 'triton')
PRECISIONS = ('auto', 'fp32', 'tf32', 'fp16', 'bf16')
#: `device` of the least busy GPU, also written 'auto'.
LEAST_BUSY = -1


@dataclass(frozen=True)
class EngineOptions:
    """Model and engine."""

    model_path: str = param(
        '',
        'Path of the ONNX model, of a TensorRT engine built from it, or of a bundle of networks '
        '(.yaml); the address of such a file, hf://OWNER/REPOSITORY/FILE or https://, to download '
        'once, with #sha256= to verify it; or a model of an inference server: '
        'grpc://HOST:8001/NAME[/VERSION], grpcs:// with TLS.',
    )
    backend: str = param(
        'auto',
        'Inference backend; auto selects the fastest one available on this machine, or triton '
        'for a model of a server (Triton, or another with the KServe V2 protocol).',
        choices=BACKENDS,
    )
    precision: str = param(
        'auto',
        "Arithmetic precision of the TensorRT engine; auto keeps the model's types and allows "
        'TF32.',
        choices=PRECISIONS,
    )
    dla_core: int = param(
        -1,
        'DLA core (Jetson) that engines are built for, with GPU fallback for unsupported '
        'layers; -1 uses the GPU only. Backend tensorrt only.',
        between=(-1, 7),
    )
    device: int = param(
        0,
        'CUDA device index (order of CUDA_DEVICE_ORDER=PCI_BUS_ID, as in nvidia-smi) among the '
        'GPUs of CUDA_VISIBLE_DEVICES, where that is set; auto or -1 takes the least busy GPU at '
        'configure.',
        between=(LEAST_BUSY, 63),
        names={'auto': LEAST_BUSY},
    )
    engine_cache_dir: str = param(
        '', 'Folder of the engine cache; empty uses $XDG_CACHE_HOME/trt_ros or ~/.cache/trt_ros.'
    )
    engine_in_memory: bool = param(
        False,
        'Whether to build the engine in memory at each start where the cache folder cannot be '
        'written; false fails.',
    )
    plugins: tuple[str, ...] = param(
        (),
        'Plugin libraries of tensorrt, or Python files (.py) that register plugins; they are '
        'executable code, and an engine that needs another one is refused.',
    )


@dataclass(frozen=True)
class RunOptions:
    """Runs on GPU, CPU or inference server."""

    gpu_wait: str = param(
        'adaptive',
        'How to wait for the GPU: adaptive sleeps until shortly before the expected end of a run '
        'and then spins; spin occupies a CPU core; block sleeps until an interrupt, which adds '
        '0.1 to 0.4 ms.',
        choices=('adaptive', 'spin', 'block'),
    )
    gpu_timeout: float = param(
        10.0,
        'Timeout of a GPU run in seconds, after which the GPU is reported as failed; 0.0 '
        'disables it.',
        zero_or=(0.001, 3600.0),
    )
    stream_priority: int = param(
        0, 'CUDA stream priority; lower values run first.', between=(-10, 0)
    )
    gpu_share: float = param(
        0.0,
        'Fraction of the GPU (its SMs) that this node has for itself among nodes of its process '
        'that have a share, too; 0.0 runs on all SMs.',
        zero_or=(0.01, 1.0),
    )
    memory_budget_mb: float = param(
        0.0,
        'Maximum GPU memory of the network, its engine and its runs in MB, beyond which configure '
        'fails and names the owners; 0.0 sets no limit.',
        zero_or=(1.0, 1e6),
    )
    frames_in_flight: int = param(
        0,
        'Number of frames or batches in flight: 1 needs the least memory; with 2, copy, network '
        'and decoding of neighboring frames overlap, for more frames per second; more only with '
        '`contexts`; 0 is `contexts`, or 2 in a node with several cameras.',
        between=(0, 4),
    )
    contexts: int = param(
        1,
        'Number of execution contexts for the frames in flight, at most as many as these, each '
        'with its own memory: small networks, which leave SMs idle, then run at the same time.',
        between=(1, 4),
    )
    unified_memory: str = param(
        'auto',
        'Whether kernels read images in place from pinned host memory; auto does so on GPUs '
        'without memory of their own (Jetson).',
        choices=('auto', 'on', 'off'),
    )
    cpu_threads: int = param(
        0,
        'Number of ONNX Runtime threads; 0 measures at configure and uses the fewest threads '
        'that are about as fast as all CPUs. Backend onnxruntime only.',
        between=(0, 1024),
    )
    remote_timeout: float = param(
        2.0,
        'Timeout in seconds of a request to the inference server, after which its frames are '
        'dropped. Backend triton only.',
        between=(0.001, 3600.0),
    )
    remote_ca_path: str = param(
        '',
        'Path of the PEM file of the certificates that sign that of the server (grpcs://); empty '
        'uses those of gRPC. Backend triton only.',
    )
    remote_token_path: str = param(
        '',
        'Path of a file with the bearer token sent with each request (grpcs:// only), read again '
        'for each; empty sends none. Backend triton only.',
    )
