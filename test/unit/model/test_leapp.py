"""Files of bundles: what they say, and what is refused with its line."""

from pathlib import Path
import re

import numpy as np
import pytest
import yaml

from support.bundles import denoiser, sums, two_sums, write_bundle, write_cascade
from trt_ros.errors import ModelError
from trt_ros.model.leapp import _KEYS, read_bundle
from trt_ros.runtime.options import PipelineOptions


def replaced(path: Path, *pairs: tuple[str, str]) -> Path:
    text = path.read_text()
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after, 1)
    path.write_text(text)
    return path


def test_inputs_and_outputs_have_their_own_names_where_these_are_unique(tmp_path):
    networks = {'A': sums('x y', 'z h'), 'B': sums('x z', 'out h')}
    path = write_bundle(
        tmp_path, networks, inputs={'A': ['x', 'y'], 'B': ['x']}, data_flow={'A/z': ['B/z']}
    )
    bundle = read_bundle(path)
    assert [spec.name for spec in bundle.inputs] == ['A/x', 'y', 'B/x']
    assert [spec.name for spec in bundle.outputs] == ['z', 'A/h', 'out', 'B/h']
    assert bundle.default_outputs == ('z', 'A/h', 'out', 'B/h')
    assert bundle.flow == {'B/z': 'A/z'}


def test_fed_back_inputs_are_states_of_the_initial_values_in_both_spellings(tmp_path):
    path = two_sums(tmp_path)
    ours = read_bundle(path)
    assert ours.bindings[1:] == ('ai2=state:ao2', 'ai3=state:bo3', 'bi2=state:bo2')
    theirs = read_bundle(replaced(path, ('feedback_flow', 'feedback_connections')))
    assert (theirs.feedback, theirs.bindings) == (ours.feedback, ours.bindings)
    (tmp_path / 'start.safetensors').touch()
    replaced(path, ('pipeline:', 'pipeline:\n  initial_values: start.safetensors'))
    assert read_bundle(path).bindings[1] == (
        f'ai2=state:ao2?initial={tmp_path}/start.safetensors#A/ai2'
    )


def test_shapes_may_be_text_and_elements_have_names_at_the_right(tmp_path):
    path = replaced(
        two_sums(tmp_path),
        (
            '- name: ai1\n      dtype: float32\n      shape:\n      - 1\n',
            '- {name: ai1, shape: "[3, 2]", element_names: [null, [hip, knee]], history: 3}\n',
        ),
    )
    port = read_bundle(path).input_ports['A/ai1']
    assert (port.spec.shape, port.spec.dtype) == ((3, 2), 'float32')
    assert (port.element_names, port.settings) == (('hip', 'knee'), 'history=3')


def test_a_loop_has_values_per_step(tmp_path):
    bundle = read_bundle(denoiser(tmp_path, steps=3))
    single, loop = bundle.groups
    assert (single.networks, single.steps) == (('encoder',), 1)
    assert (loop.networks, loop.steps, loop.carry) == (('step',), 3, {'step/x': 'step/x_next'})
    assert loop.values['step/t'].tolist() == [[[0]], [[1]], [[2]]]
    assert loop.values['step/dt'].dtype == np.float32
    assert bundle.bindings[1] == 'x=noise:normal?seed=42'


def bomb() -> str:
    rows = ['- &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]']
    rows += [f'- &a{i} [{", ".join([f"*a{i - 1}"] * 9)}]' for i in range(1, 9)]
    return '\n'.join(rows)


@pytest.mark.parametrize(
    ('kind', 'known'),
    [
        ('state/joint/positions', 'state/joint/position'),
        ('STATE/CAMERA/IMAGE', 'state/camera/image'),
        ('state/camera/image', ''),
        ('state/joint/torque', ''),
        ('state/body/velocity', ''),
        ('state/foot/position', ''),
    ],
)
def test_kinds_that_are_almost_a_known_one_are_misspelled(tmp_path, kind, known):
    path = replaced(two_sums(tmp_path), ('name: ai1', f'name: ai1\n      kind: {kind}'))
    if known:
        with pytest.raises(ModelError, match=f"Unknown kind '{kind}'. Did you mean '{known}'"):
            read_bundle(path)
    else:
        assert read_bundle(path).input_ports['A/ai1'].kind == kind


def test_initial_values_without_feedback_are_refused(tmp_path):
    path = write_bundle(tmp_path, {'A': sums('x', 'y')}, inputs={'A': ['x']}, initial_values='')
    assert read_bundle(path).initial_values is None
    replaced(path, ("initial_values: ''", 'initial_values: A.onnx'))
    with pytest.raises(ModelError, match='There is no feedback, whose first values'):
        read_bundle(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('before', 'after', 'cause'),
    [
        ('model_path: A.onnx', 'model_path: C.onnx', r'The file .*C.onnx does not exist'),
        ('model_path: A.onnx', 'model_path: ../A.onnx', r"'../A.onnx' leaves the folder"),
        ('model_path: A.onnx', 'model_path: /etc/passwd', r"'/etc/passwd' leaves the folder"),
        ('backend: onnx', 'backend: jit', 'a file of jit'),
        ('backend: onnx', 'backend: onnx\n      sha256sum: "00"', 'SHA-256 of .* is another'),
        ('A/ao1:', 'A/a:', "Unknown output 'A/a'. Did you mean .*'A/ao1'"),
        ('- B/bi1', '- B/bi3', "Unknown input 'B/bi3'. Did you mean .*'B/bi1'"),
        ('- B/bi1', '- [B/bi1]', r"Unknown input \['B/bi1'\]"),
        ('- ai1', '- ai1\n    - ai2', 'The input A/ai2 has two sources'),
        ('A:\n    - ai1', 'A: []', 'The input A/ai1 has no source'),
        ('name: bi1', 'name: bi1\n      initial_noise: true', 'and another source: data_flow'),
        ('A/ao1:\n    - B/bi1', 'B/bo1:\n    - A/ai1', 'computed after its use'),
        ('A/ao1:', 'A/ao1:\n    - B/bi1\n    A/ao2:', 'The input B/bi1 has two sources'),
        (
            'feedback_flow:',
            'feedback_connections: {A/ao1: [A/ai2]}\n  feedback_flow:',
            'The input A/ai2 has two sources',
        ),
        ('name: bi1\n', 'name: bi1\n      dtype: float16\n', 'The key dtype occurs twice'),
        (
            'float32\n      shape:\n      - 1\n    - name: bi2',
            'int8\n      shape: [1]\n    - name: bi2',
            'ao1 .* does not fit the input bi1',
        ),
        ('shape:\n      - 1', 'shape: [n]', r"A list of positive integers .* not \['n'\]"),
        ('dtype: float32', 'dtype: float31', "Unknown type 'float31'. Did you mean"),
        (
            'name: ai1',
            'name: ai1\n      kind: state/body/poses',
            "'state/body/poses'. Did you mean '",
        ),
        ('name: ai2', 'name: ai1', 'The input ai1 is declared twice'),
        ('name: ai1', 'name: ai1\n      name: ai1', 'The key name occurs twice'),
        ('name: ai1', 'name: [ai1]', r"text is expected, not \['ai1'\]"),
        ('name: ai1', 'name: ai1\n      element_names: [[a, b]]', '2 names for the last axis'),
        ('name: ai1', 'name: ai1\n      element_names: [[a, a]]', 'names for the last axis'),
        ('name: ai1', 'name: !!python/tuple [ai1]', 'The tag .*python/tuple is not allowed'),
        ('pipeline:', 'pipeline:\n  configs: {frequency: -5}', '-5 is no frequency above 0'),
        (
            'pipeline:',
            'pipeline:\n  initial_values: a.safetensors',
            'a.safetensors does not exist',
        ),
        ('pipeline:', 'pipeline:\n  loops: [{models: [C], steps: 2}]', "Unknown model 'C'"),
        ('pipeline:', 'pipeline:\n  loops: [{models: [B, A], steps: 2}]', 'follow each other'),
        ('pipeline:', 'pipeline:\n  loops: [{models: [B], steps: 0}]', '0 is not from 1'),
        ('name: bi1', 'name: bi1\n      history: 3', 'a history, and another source: data_flow'),
        (
            'name: ai1',
            'name: ai1\n      history: 3\n      include_current_in_history: false',
            'Only histories that end with the present value',
        ),
        (
            'name: ai1',
            'name: ai1\n      history: 3\n      include_current_value_in_history: false',
            'Only histories that end with the present value',
        ),
        ('parameters:', 'options: {}\n    parameters:', 'the parameters of the node'),
        ('pipeline:', 'pipeline:\n  turns: {A: B}', 'Regions lead from the first'),
        ('pipeline:', 'pipline:', "Unknown key 'pipline'. Did you mean 'pipeline'"),
        ('outputs:\n    B:', 'output:\n    B:', "'output'. Did you mean 'outputs'"),
        ('pipeline:', 'pipeline:\n  initial_value: a.npz', "Did you mean 'initial_values'"),
        ('pipeline:', 'pipeline:\n  configs: {freqency: 5}', "Did you mean 'frequency'"),
        ('pipeline:', 'pipeline:\n  loops: [{models: [B], step: 2}]', "Did you mean 'steps'"),
        ('backend: onnx', 'backend: onnx\n      Sha265sum: "00"', "Did you mean 'sha256sum'"),
        ('backend: onnx', 'backend: onnx\n      SHA256: "00"', "Did you mean 'sha256sum'"),
        ('parameters:', 'option: {}\n    parameters:', "Did you mean 'options'"),
        ('name: ai1', 'name: ai1\n      element_name: [[a]]', "Did you mean 'element_names'"),
        ('backend: onnx', 'backend: onnx\n      checksum: "00"', "Did you mean 'sha256sum'"),
        ('name: ai1', 'name: ai1\n      elements: [[a]]', "Did you mean 'element_names'"),
        ('name: ai1', 'name: ai1\n      noise: true', "Did you mean 'initial_noise'"),
        ('pipeline:', 'pipeline:\n  configs: {rate_hz: 5}', "Did you mean 'frequency'"),
        ('pipeline:', 'pipeline:\n  configs: {Hz: 5}', "Did you mean 'frequency'"),
        ('name: ai1', "name: ai1\n      initial_noise: 'no'", "true or false is .* not 'no'"),
        ('models:\n', 'bomb:\n' + bomb() + '\nmodels:\n', 'More than 100000 values'),
        ('models:\n', 'models: [A]\nothers:\n', r"a mapping is expected, not \['A'\]"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_line(tmp_path, before, after, cause):
    path = two_sums(tmp_path)
    start = path.read_text().index(before)
    replaced(path, (before, after))
    with pytest.raises(ModelError, match=cause) as caught:
        read_bundle(path)
    line = int(re.search(r'in line (\d+)', caught.value.problem)[1])
    first = path.read_text()[:start].count('\n') + 1
    if 'source' not in cause and 'fit' not in cause:
        assert first <= line <= first + 3 + 20 * ('bomb' in after)


#: Every place of a bundle that has keys of its own, with an unknown key and the nearest known one.
UNKNOWN_KEYS = [
    ((), 'model_path', 'models/*/parameters/model_path'),
    (('models', 'A'), 'backend', 'parameters/backend'),
    (('models', 'A'), 'option', 'options'),
    (('models', 'A', 'parameters'), 'model', 'model_path'),
    (('models', 'A', 'inputs', 0), 'include', 'include_current_in_history'),
    (('models', 'A', 'inputs', 2), 'elements', 'element_names'),
    (('models', 'A', 'outputs', 0), 'history', ''),
    (('models', 'B', 'outputs', 1), 'initial_noise', ''),
    (('pipeline',), 'rate_hz', 'configs/frequency'),
    (('pipeline',), 'include', ''),
    (('pipeline',), 'steps', 'loops/steps'),
    (('pipeline', 'configs'), 'frequencies', 'frequency'),
    (('pipeline', 'configs'), 'isaaclab', ''),
    (('pipeline', 'loops', 0), 'value', 'values'),
    (('pipeline', 'inputs'), 'a', 'A'),
    (('pipeline', 'outputs'), 'C', ''),
    (('pipeline', 'data_flow'), 'A/ao', 'A/ao1'),
    (('pipeline', 'feedback_flow'), 'A/b', ''),
    (('pipeline', 'loops', 0, 'carry'), 'B/bo9', 'B/bo1'),
    (('pipeline', 'loops', 0, 'values'), 'B/bi9', 'B/bi1'),
]


@pytest.mark.parametrize(('place', 'key', 'nearest'), UNKNOWN_KEYS)
def test_an_unknown_key_is_refused_at_every_level(tmp_path, place, key, nearest):
    path = two_sums(tmp_path)
    document = yaml.safe_load(path.read_text())
    document['pipeline'].update(
        configs={'frequency': 5},
        loops=[{'models': ['B'], 'steps': 2, 'carry': {}, 'values': {}}],
        feedback_connections={},
    )
    path.write_text(yaml.safe_dump(document))
    assert read_bundle(path).frequency == 5
    here = document
    for each in place:
        here = here[each]
    here[key] = []
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ModelError, match=f'Unknown .* {key!r}') as caught:
        read_bundle(path)
    assert caught.value.problem.endswith('/'.join(map(str, (*place, key))) + '.')
    hint = f"Did you mean .*'{re.escape(nearest)}'"
    assert bool(re.search(hint, caught.value.cause)) == bool(nearest)
    known = {*here} - {key}
    assert known <= set(re.findall(r'[^ ,.]+', caught.value.remedy)) or not known


def test_every_mapping_of_a_bundle_is_among_the_levels():
    def levels(form, place=()):
        if isinstance(form, list):
            form, place = form[0], (*place, 0)
        if isinstance(form, dict):
            yield place
            for key, inner in form.items():
                yield from levels(inner, (*place, key))

    tried = {
        tuple(
            '*' if i == 1 and place[0] == 'models' else 0 if each == 2 else each
            for i, each in enumerate(place)
        )
        for place, *_ in UNKNOWN_KEYS
    }
    assert {*levels(_KEYS)} - {('models',)} <= tried


def test_keys_of_exporters_without_an_effect_and_anchors_are_let_be(tmp_path):
    text = two_sums(tmp_path).read_text()
    path = tmp_path / 'bundle.yaml'
    path.write_text('float: &float {kind: float32}\nsystem information: {os: Linux}\n' + text)
    replaced(
        path,
        ('name: ai1', 'name: ai1\n      type: tensor\n      source: x'),
        ('name: ai1', 'name: ai1\n      isaaclab_connection: state:robot:joint_pos'),
        ('model_path: A', 'md5sum: "00"\n      device: cuda\n      model_path: A'),
    )
    with pytest.raises(ModelError, match="Unknown key 'float'"):
        read_bundle(path)
    replaced(path, ('{kind: float32}', 'float32'), ('dtype: float32', 'dtype: *float'))
    assert read_bundle(path).inputs[0].dtype == 'float32'
    replaced(path, ('shape:\n', 'shape: &one\n'), ('shape:\n      - 1\n', 'shape: *one\n'))
    assert [each.shape for each in read_bundle(path).inputs[:2]] == [(1,), (1,)]
    replaced(path, ('pipeline:', 'other: [*float, &own 1, *own]\npipeline:'))
    with pytest.raises(ModelError, match="Unknown key 'other'"):
        read_bundle(path)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    path = two_sums(tmp_path)
    outside = tmp_path.parent / f'{tmp_path.name}.onnx'
    (tmp_path / 'A.onnx').rename(outside)
    (tmp_path / 'A.onnx').symlink_to(outside)
    with pytest.raises(ModelError, match='a link out of the folder'):
        read_bundle(path)


@pytest.mark.parametrize('text', [b'a: [', b'\xff\xfe', b'', b'- 1', b'a: &a [*a]', None])
def test_other_files_are_no_bundles(tmp_path, text):
    path = tmp_path / 'bundle.yaml'
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ModelError, match=r'The bundle .*bundle\.yaml'):
        read_bundle(path)


@pytest.mark.parametrize(
    ('before', 'after', 'cause'),
    [
        ('detector: color', 'color: detector', 'Regions lead from the first of two'),
        ('detector: color', 'detector: colors', 'Regions lead from the first of two'),
        ('  regions:', '  turns: {detector: color}\n  regions:', 'Regions lead from the first'),
        ('  regions:', '  outputs: {}\n  regions:', 'Nothing but regions connects'),
        ('  regions:', '  configs: {}\n  regions:', 'Nothing but regions connects'),
        ('parameters:', 'inputs: []\n    parameters:', 'have the tensors of the file'),
        ('detector.onnx', 'detector.onnx\n    options: {}', 'parameters of the node'),
        ('options:', 'options:\n      labels_path: a.txt', 'The file .*a.txt does not exist'),
    ],
)
def test_a_cascade_that_contradicts_itself_is_refused(tmp_path, before, after, cause):
    path = write_cascade(tmp_path)
    assert read_bundle(path).region_options['color']['labels'] == ['red', 'green', 'blue']
    replaced(path, (before, after))
    with pytest.raises(ModelError, match=r'invalid in line \d+') as caught:
        read_bundle(path)
    assert re.search(cause, caught.value.cause)


@pytest.mark.parametrize('regions', ({'first': 'second'}, {}))
def test_kind_of_a_bundle_is_known_without_its_networks(tmp_path, regions):
    models = {name: {'parameters': {'model_path': f'{name}.onnx'}} for name in ('first', 'second')}
    path = tmp_path / 'bundle.yaml'
    path.write_text(yaml.safe_dump({'models': models, 'pipeline': {'regions': regions}}))
    options = PipelineOptions(model_path=str(path))
    assert (options.is_cascade, options.has_bindings) == (bool(regions), not regions)
    with pytest.raises(ModelError, match=r'first\.onnx'):
        read_bundle(path)
