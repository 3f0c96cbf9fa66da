"""Table of the precisions that each TensorRT runs on each GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from trt_ros.errors import BackendError
from trt_ros.trt import Library

Capability = tuple[int, int]
Range = tuple[tuple[float, ...], tuple[float, ...]]

KINDS = ('fp32', 'tf32', 'fp16', 'bf16', 'int8', 'fp8', 'mxfp8', 'int4', 'nvfp4')
CONVOLUTIONS, PRODUCTS = LAYERS = ('convolutions', 'matrix products')
ALL: Range = ((0,), (inf,))
_FP16 = 'Use the original with precision fp16'
_PRODUCTS_ONLY = (
    f'{_FP16}, or quantize only matrix products: trt-ros quantize --keep Conv --keep ConvTranspose'
)


def _below(*number: int) -> Range:
    return (0,), number


def _from(*number: int) -> Range:
    return number, (inf,)


@dataclass(frozen=True)
class Rule:
    """
    A combination that does not work; everything without a rule does.

    :param kinds: precisions, separated by spaces.
    :param library: '' for both.
    :param versions: lowest release, and the first one beyond.
    :param capabilities: lowest compute capability, and the first one beyond.
    :param reason: what the library does, or needs.
    :param layers: one of LAYERS that this is limited to; '' for both.
    """

    kinds: str
    library: str
    versions: Range
    capabilities: Range
    reason: str
    layers: str = ''
    remedy: str = f'{_FP16}.'

    def concerns(self, kind: str, layers: str, library: str, version: Sequence[int]) -> bool:
        """Return whether this applies to layers of a precision on some GPU."""
        oldest, beyond = self.versions
        return (
            kind in self.kinds.split()
            and self.library in ('', library)
            and oldest <= tuple(version) < beyond
            and self.layers in ('', layers)
        )


_ALL_KINDS, _FULL, _RTX = ' '.join(KINDS), 'tensorrt', 'tensorrt_rtx'
_LISTED = 'it runs on 7.5, 8.0, 8.6, 8.9, 12.0 and newer'
#: The first one that applies counts. Sources: NVIDIA's support matrices of TensorRT 10.14 and of
#: TensorRT for RTX 1.4, release notes of TensorRT 10.5 and 10.8; tensorrt_rtx 1.4 to 1.7: builds
#: for each target without a GPU, runs on H100 and H200. Those of tensorrt were never run.
RULES = (
    Rule(_ALL_KINDS, _FULL, _below(10, 5), _below(7, 0), 'it needs 7.0'),
    Rule(_ALL_KINDS, _FULL, _from(10, 5), _below(7, 5), 'it needs 7.5'),
    Rule(_ALL_KINDS, _RTX, ALL, _below(7, 5), 'it needs 7.5'),
    *(
        Rule(_ALL_KINDS, _RTX, _from(1, 7), gap, _LISTED)
        for gap in (((7, 6), (8, 0)), ((8, 1), (8, 6)), ((8, 7), (8, 9)), ((9, 0), (12, 0)))
    ),
    Rule('tf32 bf16', '', ALL, _below(8, 0), 'it needs 8.0', remedy='Set precision to fp16.'),
    Rule('int4', _RTX, ALL, _below(8, 0), 'it needs 8.0'),
    Rule('fp8 mxfp8', '', ALL, _below(8, 9), 'it needs 8.9'),
    Rule('mxfp8', _FULL, ALL, _below(10, 0), 'it needs 10.0'),
    Rule('nvfp4', '', ALL, _below(10, 0), 'it needs 10.0'),
    Rule('int4', _FULL, _below(10, 3), ALL, 'it needs release 10.3'),
    Rule('mxfp8 nvfp4', _FULL, _below(10, 8), ALL, 'it needs release 10.8'),
    Rule(
        'int8',
        _RTX,
        _below(1, 7),
        ((9, 0), (9, 1)),
        'it needs release 1.7, which refuses this GPU',
        CONVOLUTIONS,
        f'{_PRODUCTS_ONLY}.',
    ),
    Rule(
        'int8',
        _RTX,
        _below(1, 7),
        ALL,
        'it needs release 1.7',
        CONVOLUTIONS,
        f'Install tensorrt_rtx 1.7 (not for H100 and H200). {_PRODUCTS_ONLY}.',
    ),
    Rule('fp32', _RTX, _from(1, 7), _below(8, 0), 'it needs 8.0', PRODUCTS, 'Set fp16.'),
    Rule(
        'fp8',
        _RTX,
        ALL,
        ((9, 0), (9, 1)),
        'it computes them wrongly, without their scales',
        CONVOLUTIONS,
        f'{_PRODUCTS_ONLY} --to fp8',
    ),
)


def rule_against(
    kind: str, library: Library, capability: Capability | None = None, layers: str = ''
) -> Rule | None:
    """Return the rule against layers of a precision, None where they work."""
    for each in RULES:
        lowest, beyond = each.capabilities
        of_gpu = each.capabilities == ALL if capability is None else lowest <= capability < beyond
        if of_gpu and each.concerns(kind, layers, library.name, library.version):
            return each
    return None


def refused_gpu(library: Library, capability: Capability) -> str:
    """Return why a library cannot use a GPU at all, '' if it can."""
    rule = rule_against('fp16', library, capability)
    return f'compute capability {text_of(capability)}, but {rule.reason}' if rule else ''


def table_row(library: Library, capability: Capability | None) -> str:
    """Return what a library runs on one GPU or any: 'fp32, int8 (no convolutions); not nvfp4'."""
    runs, refused = list[str](), list[str]()
    for kind in KINDS:
        lacks = [layers for layers in LAYERS if rule_against(kind, library, capability, layers)]
        if len(lacks) == len(LAYERS):
            refused.append(kind)
            continue
        more = [f'no {lacks[0]}'] if lacks else []
        if capability is None:
            found = limits(kind, library.name, library.version)[:1]
            more += [each.removeprefix('needs compute capability ') for each in found]
        runs.append(kind + (f' ({", ".join(more)})' if more else ''))
    return ', '.join(runs) + (f'; not {", ".join(refused)}' if refused else '')


def check_precisions(
    library: Library,
    capability: Capability | None,
    quantized: Mapping[str, Sequence[str]],
    precision: str = 'auto',
) -> list[str]:
    """
    Check precisions; return lines on what nobody has tried (tensorrt).

    :param capability: None for any GPU.
    :param quantized: names of layers, as of `layers_by_precision`.
    :raises BackendError: if tensorrt_rtx cannot run one.
    """
    where = '' if capability is None else f' on compute capability {text_of(capability)}'
    lines = []
    for key, names in {precision: (), **quantized}.items():
        kind, _, layers = key.partition(' ')
        rule = rule_against(kind, library, capability, layers)
        if rule is None:
            continue
        problem = f'{library} does not run {key}{where}: {rule.reason}.'
        lines.append(f"by NVIDIA's support matrix, {problem}")
        if library.is_rtx:
            more = ', ...' if len(names) > 3 else ''
            cause = f'The model has {len(names)}: {", ".join(names[:3])}{more}' if names else ''
            raise BackendError(problem, cause=cause, remedy=rule.remedy)
    return lines


def limits(key: str, library: str, version: Sequence[int]) -> list[str]:
    """Return where layers, as of `layers_by_precision`, do not work, the lowest GPU first."""
    kind, _, layers = key.partition(' ')
    found = [
        rule
        for rule in RULES
        if rule.concerns(kind, layers, library, version)
        and rule.kinds != _ALL_KINDS  # The library does not run there at all.
    ]
    if any(rule.capabilities == ALL for rule in found):
        return []  # They do not work anywhere.
    lowest = [rule.capabilities[1] for rule in found if rule.capabilities[0] == (0,)]
    return [f'needs compute capability {text_of(max(lowest))} or newer' for _ in lowest[:1]] + [
        f'on compute capability {text_of(rule.capabilities[0])}, {rule.reason}'
        for rule in found
        if rule.capabilities[0] != (0,)
    ]


def summary(
    quantized: Mapping[str, Sequence[str]],
    library: str,
    version: Sequence[int],
    *,
    is_checked: bool,
) -> list[str]:
    """Return a line per kind of quantized layers; a warning, unless the GPU has been checked."""
    lines = []
    for key, names in quantized.items():
        text = '; '.join((f'{len(names)} {key}', *limits(key, library, version)))
        lines.append(f'warning: {text}' if ';' in text and not is_checked else text)
    return lines


def text_of(capability: Sequence[float]) -> str:
    """Return a compute capability as '8.9'."""
    return '.'.join(map(str, capability))
