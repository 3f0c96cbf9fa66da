"""An engine of every family, built from a small network with the operators of its export."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import is_dataclass

import numpy as np
import onnx
import onnx.parser
import pytest

from support.builds import build_here
from support.networks.detr import (
    detr,
    detr_panoptic,
    mask_queries,
    rfdetr_seg,
    rtdetr_deployed,
    rtdetr_queries,
)
from support.networks.other import (
    BILINEAR,
    GEMM,
    centernet,
    dense,
    depth,
    detectnet,
    efficient_nms,
    faces,
    grids_of,
    heatmaps,
    lstr,
    mmdetection,
    onnx_nms,
    paddle,
    palms,
    pooled,
    priors,
    retinaface,
    rows_of,
    simcc,
    tensorflow,
    torchvision,
    ufld,
    ufld_v2,
    yolov3,
)
from support.networks.yolo import (
    IMAGE,
    ULTRALYTICS,
    distributions,
    yolov5,
    yolov5_raw,
    yolov5_seg,
    yolov8,
    yolov8_obb,
    yolov8_pose,
    yolov8_seg,
    yolov10,
    yolox,
)
from trt_ros.cuda.device import gpu_count
from trt_ros.decode.choice import choose_decoder, open_head
from trt_ros.engine.builder.parent import build
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ModelError
from trt_ros.families import registry as decoder
from trt_ros.families.evidence import claim_of
from trt_ros.families.family import NetworkDescription
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.gpu import shared_resources
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.tensors import TensorSpec
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.slow  # A second each.


DETECTORS = {
    family.name: family
    for families in (
        decoder.DETECTORS,
        decoder.SEGMENTERS,
        decoder.POSES,
        decoder.ORIENTED,
        decoder.CLASSIFIERS,
        decoder.TEXTS,
        decoder.DEPTHS,
        decoder.EMBEDDINGS,
    )
    for family in families
}

# tensorrt_rtx cannot build their last operator, so it is cut off.
CUT = {'onnx_nms', 'yolov3', 'efficient_nms', 'ppyoloe'}


def case(family, outputs, network, metadata=None, *, named=None, inputs=''):
    """Return a row; `named` classes come from the user, `inputs` are beside the image."""
    return family, inputs, outputs, network, metadata or {}, named


BUILDS = [
    case('yolov8', 'float[1,7,21] output0', yolov8(), {**ULTRALYTICS, 'task': 'detect'}),
    case(
        'yolov10',
        'float[1,9,6] output0',
        yolov10(),
        {**ULTRALYTICS, 'task': 'detect', 'end2end': 'True'},
    ),
    case('yolov5', 'float[1,63,8] output0', yolov5(), ULTRALYTICS),
    case('yolox', 'float[1,21,8] output', yolox()),
    case('rtdetr', 'float[1,9,3] logits, float[1,9,4] pred_boxes', rtdetr_queries(), named=3),
    case(
        'rtdetr',
        'int64[1,9] labels, float[1,9,4] boxes, float[1,9] scores',
        rtdetr_deployed(),
        inputs=', int64[1,2] orig_target_sizes',
    ),
    case('detr', 'float[1,16,4] logits, float[1,16,4] pred_boxes', detr(4), named=3),
    case('rfdetr', 'float[1,16,4] dets, float[1,16,3] labels', detr(3, 'labels', 'dets')),
    case(
        'ssd',
        'float[1,16,3] scores, float[1,16,4] boxes',
        priors('scores', 'boxes', 'Softmax <axis = 2>'),
        named=2,
    ),
    case(
        'boxes', 'float[1,16,4] boxes, float[1,16,3] scores', priors('scores', 'boxes', 'Sigmoid')
    ),
    case(
        'boxes_normalised',
        'float[1,16,4] boxes, float[1,16,3] scores',
        priors('scores', 'boxes', 'Sigmoid'),
    ),
    case('detectnet_v2', 'float[1,3,2,2] output_cov, float[1,12,2,2] output_bbox', detectnet()),
    case(
        'onnx_nms',
        'int64[n,3] chosen, float[1,16,4] boxes, float[1,3,16] scores',
        onnx_nms('chosen'),
    ),
    case(
        'yolov3',
        'int64[n,3] chosen, float[1,16,4] boxes, float[1,3,16] scores',
        yolov3(),
        inputs=', float[1,2] image_shape',
    ),
    case(
        'efficient_nms',
        'int32[1,1] num_dets, float[1,20,4] det_boxes, float[1,20] det_scores, '
        'int32[1,20] det_classes',
        efficient_nms(),
    ),
    case('mmdetection', 'float[1,16,5] dets, int64[1,16] labels', mmdetection()),
    case(
        'tensorflow',
        'float[1,16,4] detection_boxes, float[1,16] detection_scores, '
        'float[1,16] detection_classes',
        tensorflow(),
    ),
    case(
        'yolov5_raw',
        'float[1,3,4,4,8] t3, float[1,3,2,2,8] t4, float[1,3,1,1,8] t5',
        yolov5_raw(),
        ULTRALYTICS,
    ),
    case(
        'yolov7_raw', 'float[1,3,4,4,8] t3, float[1,3,2,2,8] t4, float[1,3,1,1,8] t5', yolov5_raw()
    ),
    case('nanodet_plus', 'float[1,22,35] output', distributions(True)),
    case(
        'nanodet',
        'float[1,16,3] scores_8, float[1,4,3] scores_16, float[1,1,3] scores_32, '
        'float[1,16,32] sides_8, float[1,4,32] sides_16, float[1,1,32] sides_32',
        distributions(False),
    ),
    case(
        'picodet',
        'float[1,16,3] scores_8, float[1,4,3] scores_16, float[1,1,3] scores_32, '
        'float[1,1,3] scores_64, float[1,16,32] sides_8, float[1,4,32] sides_16, '
        'float[1,1,32] sides_32, float[1,1,32] sides_64',
        distributions(False),
    ),
    case(
        'ppyoloe',
        'float[n,6] rows, int32[1] numbers',
        paddle(is_finished=True),
        inputs=', float[1,2] scale_factor',
    ),
    case(
        'ppyoloe_plus',
        'float[1,16,4] boxes, float[1,3,16] scores',
        paddle(is_finished=False),
        inputs=', float[1,2] scale_factor',
    ),
    case('centernet', 'float[1,3,8,8] hm, float[1,2,8,8] wh, float[1,2,8,8] reg', centernet()),
    case(
        'yolov5_seg',
        'float[1,63,8] output0, float[1,2,8,8] output1',
        yolov5_seg(),
        {'stride': '32'},
    ),
    case('yolov5_face', 'float[1,63,16] output0', yolov5(16)),
    case(
        'scrfd',
        'float[1,32,1] score_8, float[1,8,1] score_16, float[1,2,1] score_32, '
        'float[1,32,4] bbox_8, float[1,8,4] bbox_16, float[1,2,4] bbox_32, '
        'float[1,32,10] kps_8, float[1,8,10] kps_16, float[1,2,10] kps_32',
        faces({'score': 1, 'bbox': 4, 'kps': 10}, 2),
    ),
    case(
        'yunet',
        'float[1,16,1] cls_8, float[1,4,1] cls_16, float[1,1,1] cls_32, '
        'float[1,16,1] obj_8, float[1,4,1] obj_16, float[1,1,1] obj_32, '
        'float[1,16,4] bbox_8, float[1,4,4] bbox_16, float[1,1,4] bbox_32, '
        'float[1,16,10] kps_8, float[1,4,10] kps_16, float[1,1,10] kps_32',
        faces({'cls': 1, 'obj': 1, 'bbox': 4, 'kps': 10}, 1),
    ),
    case(
        'yunet_2022',
        'float[1,58,14] loc, float[1,58,2] conf, float[1,58,1] iou',
        rows_of({'loc': 14, 'conf': 2, 'iou': 1}, 58, 'wo'),
    ),
    case(
        'blazeface',
        'float[1,56,16] boxes, float[1,56,1] scores',
        rows_of({'boxes': 16, 'scores': 1}, 56),
    ),
    case(
        'centerface',
        'float[1,1,8,8] hm, float[1,2,8,8] wh, float[1,2,8,8] offset, float[1,10,8,8] landmarks',
        grids_of({'hm': 1, 'wh': 2, 'offset': 2, 'landmarks': 10}, 4, 'wo'),
    ),
    case('fastestdet', 'float[1,8,2,2] out', grids_of({'out': 8}, 16), named=3),
    case(
        'retinaface', 'float[1,42,4] loc, float[1,42,2] conf, float[1,42,10] landms', retinaface()
    ),
    case('yolov7_pose', 'float[1,63,21] output0', yolov5(21)),
    case(
        'yolov8_seg',
        'float[1,15,21] output0, float[1,8,8,8] output1',
        yolov8_seg(),
        {**ULTRALYTICS, 'task': 'segment'},
    ),
    case(
        'yolov8_pose',
        'float[1,56,21] output0',
        yolov8_pose(),
        {'task': 'pose', 'kpt_shape': '[17, 3]', 'names': "{0: 'person'}"},
    ),
    case('heatmap_pose', 'float[1,17,8,8] heatmaps', heatmaps()),
    case('simcc', 'float[1,17,64] simcc_x, float[1,17,64] simcc_y', simcc()),
    case('ufld', 'float[1,11,18,4] out', ufld()),
    *(
        case(
            family,
            f'float[1,11,{rows},4] loc_row, float[1,11,{columns},4] loc_col, '
            f'float[1,2,{rows},4] exist_row, float[1,2,{columns},4] exist_col',
            ufld_v2(rows, columns),
        )
        for family, rows, columns in (('ufld_v2_culane', 72, 81), ('ufld_v2_tusimple', 56, 41))
    ),
    case(
        'lstr',
        'float[1,7,2] pred_logits, float[1,7,8] pred_curves',
        lstr(),
        inputs=', float[1,1,32,32] mask',
    ),
    case('mediapipe_palm', 'float[1,56,18] boxes, float[1,56,1] scores', palms()),
    case(
        'mediapipe_hand',
        'float[1,63] Identity, float[1,1] Identity_1, float[1,1] Identity_2, '
        'float[1,63] Identity_3',
        pooled(
            'Identity = Gemm <transB = 1> (f, w_points, b_points)\n'
            'g = Gemm <transB = 1> (f, w_score, b_score)\n Identity_1 = Sigmoid (g)\n'
            'h = Gemm <transB = 1> (f, w_side, b_score)\n Identity_2 = Sigmoid (h)\n'
            'Identity_3 = Gemm <transB = 1> (f, w_world, b_points)',
            (
                'float[63,8] w_points',
                'float[63,8] w_world',
                'float[63] b_points',
                'float[1,8] w_score',
                'float[1,8] w_side',
                'float[1] b_score',
            ),
        ),
    ),
    case(
        'movenet',
        'float[1,1,17,3] output_0',
        pooled(
            'g = Gemm <transB = 1> (f, w_out, b_out)\n s = Sigmoid (g)\n'
            'shape = Constant <value_ints = [1, 1, 17, 3]> ()\n output_0 = Reshape (s, shape)',
            ('float[51,8] w_out', 'float[51] b_out'),
        ),
    ),
    case('yolov8_obb', 'float[1,8,21] output0', yolov8_obb(), {**ULTRALYTICS, 'task': 'obb'}),
    case('semantic', 'float[1,3,32,32] out', dense(f'out = {BILINEAR}')),
    case(
        'semantic',
        'int64[1,32,32] out',
        dense(f'large = {BILINEAR}\n out = ArgMax <axis = 1, keepdims = 0> (large)'),
    ),
    case(
        'yolo_semantic',
        'uint8[1,32,32] output0',
        dense(
            f'large = {BILINEAR}\n index = ArgMax <axis = 1, keepdims = 0> (large)\n'
            'output0 = Cast <to = 2> (index)'
        ),
        {**ULTRALYTICS, 'task': 'semantic'},
    ),
    case(
        'rfdetr_seg',
        'float[1,16,4] dets, float[1,16,4] labels, float[1,16,8,8] masks',
        rfdetr_seg(),
    ),
    case(
        'maskformer',
        'float[1,16,4] class_queries_logits, float[1,16,8,8] masks_queries_logits',
        mask_queries(),
        named=3,
    ),
    case(
        'maskformer_panoptic',
        'float[1,16,4] logits, float[1,16,4] pred_boxes, float[1,16,8,8] pred_masks',
        detr_panoptic(),
        named=3,
    ),
    case(
        'classifier',
        'float[1,3] logits',
        pooled('logits = Gemm <transB = 1> (f, w_out, b_out)', GEMM),
    ),
    case(
        'yolov8_cls',
        'float[1,3] output0',
        pooled('g = Gemm <transB = 1> (f, w_out, b_out)\n output0 = Softmax <axis = 1> (g)', GEMM),
        {**ULTRALYTICS, 'task': 'classify'},
    ),
    case(
        'depth',
        'float[1,32,32] predicted_depth',
        depth('at = Constant <value_ints = [1]> ()\n predicted_depth = Squeeze (positive, at)'),
    ),
    case(
        'yolo_depth',
        'float[1,1,32,32] output0',
        depth('output0 = Identity (positive)'),
        {'task': 'depth'},
    ),
    case(
        'moge',
        'float[1,32,32,3] points',
        depth(
            'xyz = Concat <axis = 1> (one, one, positive)\n'
            'points = Transpose <perm = [0, 2, 3, 1]> (xyz)'
        ),
    ),
    case('pfld', 'float[1,8] landmarks', pooled('landmarks = Identity (f)', ())),
    case('pp_ocr_det', 'float[1,1,32,32] sigmoid_0', depth('sigmoid_0 = Sigmoid (one)')),
    case('pp_ocr_rec', 'float[1,16,4] logits', detr(4), {'character': 'a\nb'}, named=4),
    case(
        'embedding',
        'float[1,8] image_embeds',
        pooled('n = ReduceL2 <axes = [-1], keepdims = 1> (f)\n image_embeds = Div (f, n)', ()),
    ),
]

each_build = pytest.mark.parametrize(
    ('family', 'inputs', 'outputs', 'network', 'metadata', 'named'),
    BUILDS,
    ids=[f'{row[0]}-{index}' for index, row in enumerate(BUILDS)],
)

#: So that boxes lie in the image: where the cells are, and distances of up to two of them.
GRIDS = {
    'anchors': np.concatenate(
        [np.stack(np.meshgrid(*[np.arange(size) + 0.5] * 2)).reshape(2, -1) for size in (4, 2, 1)],
        axis=1,
    ),
    'strides': np.repeat([8, 16, 32], [16, 4, 1]),
    'dfl_w': np.arange(16) / 8,
}


def write(folder, inputs, outputs, network, metadata):
    body, weights = network
    text = f"""<ir_version: 8, opset_import: ["" : 17, "TRT" : 1]>
        small ({IMAGE}{inputs}) => ({outputs}) <{', '.join(weights)}> {{ {body} }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for value in model.graph.value_info:
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        small = value.name[:2] in ('wr', 'wo', 'wc')  # Of pixels of 0 to 255, as YOLOX takes them.
        values = (
            GRIDS[value.name]
            if value.name in GRIDS
            else rng.uniform(4, 28, shape)
            if value.name.startswith('grid')
            else rng.normal(0, 0.001 if small else 0.3, shape)
        )
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(values.astype(np.float32).reshape(shape), value.name)
        )
    del model.graph.value_info[:]
    onnx.helper.set_model_props(model, metadata)
    path = folder / 'model.onnx'
    onnx.save(model, path)
    return path


def built_network(path, library, class_count=None):
    """Build, and return what is known of the engine as a runner would."""
    report, _ = build_here(path, library)
    inputs, outputs = (
        tuple(TensorSpec(**{**each, 'shape': tuple(each['shape'])}) for each in report[mode])
        for mode in ('inputs', 'outputs')
    )
    return NetworkDescription(inputs, outputs, report['metadata'], (32, 32), class_count)


@each_build
def test_an_engine_is_built_and_recognized(
    tmp_path, rtx, family, inputs, outputs, network, metadata, named
):
    path = write(tmp_path, inputs, outputs, network, metadata)
    engine = built_network(path, rtx, metadata.get('names', '').count(':') or named)
    if family in CUT:
        outputs = 'float[1,16,4] nms_boxes, float[1,16,3] nms_scores'
    assert ','.join(map(str, engine.outputs)).replace(') ', ')').replace(' ', '') == declared(
        outputs
    ).replace(' ', '')
    assert claim_of(DETECTORS[family], engine)
    open_head(DETECTORS[family], engine)


#: With kernels of their own; but not where what they read are class indices.
ON_GPU = {
    'yolov8',
    'yolov10',
    'yolov5',
    'yolox',
    'rtdetr',
    'detr',
    'rfdetr',
    'ssd',
    'boxes',
    'boxes_normalised',
    'ppyoloe_plus',
    'yolov8_seg',
    'yolov8_pose',
    'yolov8_obb',
    'semantic',
    'yolo_semantic',
    'classifier',
    'yolov8_cls',
    'pp_ocr_rec',
    'depth',
    'yolo_depth',
    'yolov5_face',
    'yolov5_raw',
    'yolov5_seg',
    'yolov7_pose',
    'yolov7_raw',
    'nanodet',
    'nanodet_plus',
    'picodet',
    'scrfd',
    'yunet',
    'yunet_2022',
    'centerface',
    'blazeface',
    'fastestdet',
    'retinaface',
    'mediapipe_palm',
    'detectnet_v2',
    'centernet',
    'mmdetection',
    'tensorflow',
    'rfdetr_seg',
    'maskformer',
    'heatmap_pose',
    'simcc',
    'movenet',
    'mediapipe_hand',
    'pfld',
    'ufld',
    'ufld_v2_culane',
    'ufld_v2_tusimple',
    'lstr',
}


@pytest.mark.gpu
@each_build
def test_gpu_decoding_equals_cpu_decoding(
    tmp_path, monkeypatch, family, inputs, outputs, network, metadata, named
):
    if not gpu_count():
        pytest.skip('no NVIDIA GPU')
    path = write(tmp_path, inputs, outputs, network, metadata)
    rng = np.random.default_rng(0)
    frame = Frame.from_pixels(
        rng.integers(0, 256, (6, 8, 3), dtype=np.uint8).repeat(9, axis=0).repeat(9, axis=1)
    )
    found = []
    for on_gpu in (True, False):
        if not on_gpu:
            monkeypatch.setattr(shared_resources, 'gpu_decoder', lambda *_: None)
        engine = open_tensor_runner(path, BuildOptions(), engine_cache_dir=tmp_path)
        chosen = choose_decoder(
            family,
            engine.inputs,
            engine.outputs,
            engine.metadata,
            (32, 32),
            named,
            families=(DETECTORS[family],),
        )
        with closing(
            GpuPipeline(
                engine,
                ResolvedModel.of_image(engine, Preprocess((32, 32), **chosen.preprocess), chosen),
            )
        ) as pipeline:
            for _ in range(3):
                result = pipeline.infer(frame, Thresholds(score=0.0, iou=0.6, max_detections=50))
            found.append(result)
            # Class indices are decoded on the CPU.
            on_gpu = on_gpu and family in ON_GPU and '[1,32,32] out' not in outputs
            assert f'decoding on the {"GPU" if on_gpu else "CPU"}' in pipeline.log_lines[-1]
    got, want = ({'it': each} if not is_dataclass(each) else vars(each) for each in found)
    got = {name: got[name] for name in want}  # Painted instances have more of them.
    assert_alike(got, want)
    # The curves of random weights leave the image.
    has_objects = DETECTORS[family].task in ('detect', 'pose', 'obb') and family != 'lstr'
    if family in ON_GPU and has_objects:
        assert len(found[0]) > 0


def assert_alike(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        if is_dataclass(value):
            assert_alike(vars(got[name]), vars(value))
        elif isinstance(value, dict):
            assert_alike(got[name], value)
        elif isinstance(value, np.ndarray):
            assert got[name].dtype == value.dtype
            np.testing.assert_allclose(got[name], value, atol=1e-3)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            assert len(got[name]) == len(value)
            assert all(map(np.array_equal, got[name], value))
        else:
            assert got[name] == value


def declared(outputs):
    text = onnx.parser.parse_graph(f'g () => ({outputs}) {{}}')
    dtypes = {1: 'float32', 2: 'uint8', 7: 'int64'}
    return ','.join(
        '{}({}){}'.format(
            value.name,
            ','.join(str(size.dim_value) for size in value.type.tensor_type.shape.dim),
            dtypes[value.type.tensor_type.elem_type],
        )
        for value in text.output
    )


def test_every_family_has_a_case():
    assert {row[0] for row in BUILDS} == DETECTORS.keys()


def test_torchvision_loops_before_nms_are_refused_with_remedy(tmp_path, rtx):
    path = write(tmp_path, '', 'float[16,4] boxes, float[n] scores', torchvision(), {})
    with pytest.raises(ModelError, match=r'the operator NonZero .*\n.*onnxruntime'):
        build(path, BuildOptions(), rtx)
