"""An engine for every family, of a small network that ends as the family's real export does."""

from __future__ import annotations

from contextlib import closing
from dataclasses import is_dataclass

import numpy as np
import onnx
import onnx.parser
import pytest

from trt_ros.cuda.device import gpu_count
from trt_ros.engine.build.parent import build
from trt_ros.engine.open import open_engine
from trt_ros.engine.options import BuildOptions
from trt_ros.engine.plan import parse_plan_header
from trt_ros.errors import ModelError
from trt_ros.runtime.fitting import Fitted
from trt_ros.runtime.gpu import shared_resources
from trt_ros.runtime.gpu.executor import GraphPipeline
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders import registry as decoder
from trt_ros.vision.decoders.family import NetworkDescription
from trt_ros.vision.decoders.recognition import recognise
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.slow  # A second each.

FAMILIES = {
    family.name: family
    for families in (
        decoder.FAMILIES,
        decoder.SEGMENTERS,
        decoder.POSES,
        decoder.ORIENTED,
        decoder.CLASSIFIERS,
        decoder.DEPTHS,
        decoder.EMBEDDINGS,
    )
    for family in families
}
IMAGE = 'float[1,3,32,32] images'
ULTRALYTICS = {'stride': '32', 'names': "{0: 'a', 1: 'b', 2: 'c'}"}

# Networks in ONNX's own text form. What is declared behind the outputs without a value is a
# weight, filled with noise. Cells of 8, 16 and 32 pixels are 16, 4 and 1: 21 in all.
FEATURES = """
    p3 = AveragePool <kernel_shape = [8, 8], strides = [8, 8]> (images)
    p4 = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (p3)
    p5 = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (p4)
"""


def cells(name, channels):
    """Make `name` (1, channels, 21) from three convolutions; and declare their weights."""
    lines, parts = '', []
    for level in '345':
        lines += f"""
            {name}_{level} = Conv ({'p' + level}, {name}_w{level}, {name}_b{level})
            {name}_s{level} = Constant <value_ints = [1, {channels}, -1]> ()
            {name}_f{level} = Reshape ({name}_{level}, {name}_s{level})
        """
        parts.append(f'{name}_f{level}')
    lines += f'{name} = Concat <axis = 2> ({", ".join(parts)})\n'
    weights = [
        declared
        for level in '345'
        for declared in (
            f'float[{channels},3,1,1] {name}_w{level}',
            f'float[{channels}] {name}_b{level}',
        )
    ]
    return lines, weights


def distances():
    """Make `lt` and `rb` (1, 2, 21) as distributions: Ultralytics' DFL."""
    lines, weights = cells('box', 64)
    return (
        lines
        + """
        dfl_shape = Constant <value_ints = [1, 4, 16, 21]> ()
        dfl_in = Reshape (box, dfl_shape)
        dfl_t = Transpose <perm = [0, 2, 1, 3]> (dfl_in)
        dfl_p = Softmax <axis = 1> (dfl_t)
        dfl_c = Conv <kernel_shape = [1, 1]> (dfl_p, dfl_w)
        dfl_out = Constant <value_ints = [1, 4, 21]> ()
        dist = Reshape (dfl_c, dfl_out)
        zero = Constant <value_ints = [0]> ()
        two = Constant <value_ints = [2]> ()
        four = Constant <value_ints = [4]> ()
        one = Constant <value_ints = [1]> ()
        lt = Slice (dist, zero, two, one)
        rb = Slice (dist, two, four, one)
    """,
        [*weights, 'float[1,16,1,1] dfl_w', 'float[1,2,21] anchors', 'float[1,21] strides'],
    )


def yolov8_boxes():
    """Make `xywh` (1, 4, 21)."""
    lines, weights = distances()
    return (
        lines
        + """
        x1y1 = Sub (anchors, lt)
        x2y2 = Add (anchors, rb)
        sum = Add (x1y1, x2y2)
        half = Constant <value_float = 0.5> ()
        centre = Mul (sum, half)
        size = Sub (x2y2, x1y1)
        cells_xywh = Concat <axis = 1> (centre, size)
        xywh = Mul (cells_xywh, strides)
    """,
        weights,
    )


def yolov8(extras='', extra_lines=''):
    lines, weights = yolov8_boxes()
    more, more_weights = cells('cls', 3)
    return (
        FEATURES
        + lines
        + more
        + extra_lines
        + f"""
        scores = Sigmoid (cls)
        output0 = Concat <axis = 1> (xywh, scores{extras})
    """,
        [*weights, *more_weights],
    )


def yolov8_seg():
    body, weights = yolov8(', coefficients')
    lines, more = cells('coefficients', 8)
    return (
        FEATURES
        + lines
        + body.removeprefix(FEATURES)
        + """
        proto = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (p3, proto_w)
        proto_sigmoid = Sigmoid (proto)
        output1 = Mul (proto, proto_sigmoid)
    """,
        [*weights, *more, 'float[3,8,2,2] proto_w'],
    )


def yolov8_pose():
    lines, weights = yolov8_boxes()
    scores, more = cells('cls', 1)
    points, even_more = cells('kpt', 51)
    return (
        FEATURES
        + lines
        + scores
        + points
        + """
        kpt_shape = Constant <value_ints = [1, 17, 3, 21]> ()
        kpts = Reshape (kpt, kpt_shape)
        xy, seen = Split <axis = 2> (kpts, kpt_split)
        xy_twice = Mul (xy, kpt_two)
        xy_cells = Add (xy_twice, anchors)
        xy_pixels = Mul (xy_cells, strides)
        visible = Sigmoid (seen)
        points = Concat <axis = 2> (xy_pixels, visible)
        flat_shape = Constant <value_ints = [1, 51, 21]> ()
        flat = Reshape (points, flat_shape)
        scores = Sigmoid (cls)
        output0 = Concat <axis = 1> (xywh, scores, flat)
    """,
        [*weights, *more, *even_more, 'int64[2] kpt_split = {2, 1}', 'float kpt_two = {2}'],
    )


def yolov8_obb():
    lines, weights = distances()
    scores, more = cells('cls', 3)
    angles, even_more = cells('angle_raw', 1)
    return (
        FEATURES
        + lines
        + scores
        + angles
        + """
        angle_sigmoid = Sigmoid (angle_raw)
        angle_moved = Sub (angle_sigmoid, quarter)
        angle = Mul (angle_moved, pi)
        cos = Cos (angle)
        sin = Sin (angle)
        across = Sub (rb, lt)
        halved = Mul (across, half)
        xf, yf = Split <axis = 1> (halved, halves)
        xf_cos = Mul (xf, cos)
        yf_sin = Mul (yf, sin)
        x = Sub (xf_cos, yf_sin)
        xf_sin = Mul (xf, sin)
        yf_cos = Mul (yf, cos)
        y = Add (xf_sin, yf_cos)
        xy = Concat <axis = 1> (x, y)
        centre = Add (xy, anchors)
        wh = Add (lt, rb)
        cells_xywh = Concat <axis = 1> (centre, wh)
        xywh = Mul (cells_xywh, strides)
        scores = Sigmoid (cls)
        output0 = Concat <axis = 1> (xywh, scores, angle)
    """,
        [
            *weights,
            *more,
            *even_more,
            'float quarter = {0.25}',
            'float pi = {3.14159}',
            'float half = {0.5}',
            'int64[2] halves = {1, 1}',
        ],
    )


def yolov10():
    """The two TopK of Ultralytics' end-to-end head: 9 of 21 cells, then 9 of their scores."""
    lines, weights = distances()
    scores, more = cells('cls', 3)
    return (
        FEATURES
        + lines
        + scores
        + """
        x1y1 = Sub (anchors, lt)
        x2y2 = Add (anchors, rb)
        corners = Concat <axis = 1> (x1y1, x2y2)
        xyxy = Mul (corners, strides)
        probabilities = Sigmoid (cls)
        all = Concat <axis = 1> (xyxy, probabilities)
        rows = Transpose <perm = [0, 2, 1]> (all)
        boxes, scores = Split <axis = 2> (rows, four_three)
        best = ReduceMax <axes = [-1], keepdims = 0> (scores)
        best_scores, index = TopK <axis = -1> (best, k)
        last = Constant <value_ints = [-1]> ()
        index_1 = Unsqueeze (index, last)
        tile_4 = Constant <value_ints = [1, 1, 4]> ()
        index_4 = Tile (index_1, tile_4)
        some_boxes = GatherElements <axis = 1> (boxes, index_4)
        tile_3 = Constant <value_ints = [1, 1, 3]> ()
        index_3 = Tile (index_1, tile_3)
        some_scores = GatherElements <axis = 1> (scores, index_3)
        flat = Flatten <axis = 1> (some_scores)
        top, where = TopK <axis = -1> (flat, k)
        classes = Constant <value_ints = [3]> ()
        row = Div (where, classes)
        class = Mod (where, classes)
        row_1 = Unsqueeze (row, last)
        row_4 = Tile (row_1, tile_4)
        top_boxes = GatherElements <axis = 1> (some_boxes, row_4)
        top_1 = Unsqueeze (top, last)
        class_1 = Unsqueeze (class, last)
        class_f = Cast <to = 1> (class_1)
        output0 = Concat <axis = -1> (top_boxes, top_1, class_f)
    """,
        [*weights, *more, 'int64[2] four_three = {4, 3}', 'int64[1] k = {9}'],
    )


def yolov5():
    body, weights, parts = FEATURES, [], []
    for level, size in ('3', 4), ('4', 2), ('5', 1):
        body += f"""
            h{level} = Conv (p{level}, w{level})
            a{level} = Constant <value_ints = [1, 3, 8, {size}, {size}]> ()
            r{level} = Reshape (h{level}, a{level})
            t{level} = Transpose <perm = [0, 1, 3, 4, 2]> (r{level})
            s{level} = Sigmoid (t{level})
            xy{level}, wh{level}, c{level} = Split <axis = 4> (s{level}, parts)
            xy2_{level} = Mul (xy{level}, two)
            xyg{level} = Add (xy2_{level}, grid{level})
            wh2_{level} = Mul (wh{level}, two)
            whp{level} = Pow (wh2_{level}, two)
            wha{level} = Mul (whp{level}, grid{level})
            y{level} = Concat <axis = 4> (xyg{level}, wha{level}, c{level})
            f{level} = Constant <value_ints = [1, -1, 8]> ()
            z{level} = Reshape (y{level}, f{level})
        """
        weights += [f'float[24,3,1,1] w{level}', f'float[1,3,{size},{size},2] grid{level}']
        parts.append(f'z{level}')
    return body + f'output0 = Concat <axis = 1> ({", ".join(parts)})', [
        *weights,
        'int64[3] parts = {2, 2, 4}',
        'float two = {2}',
    ]


def yolox():
    body, weights, parts = FEATURES, [], []
    for level in '345':
        body += f"""
            reg{level} = Conv (p{level}, wr{level})
            obj{level} = Conv (p{level}, wo{level})
            cls{level} = Conv (p{level}, wc{level})
            so{level} = Sigmoid (obj{level})
            sc{level} = Sigmoid (cls{level})
            h{level} = Concat <axis = 1> (reg{level}, so{level}, sc{level})
            f{level} = Constant <value_ints = [1, 8, -1]> ()
            z{level} = Reshape (h{level}, f{level})
        """
        weights += [f'float[{n},3,1,1] {w}{level}' for w, n in (('wr', 4), ('wo', 1), ('wc', 3))]
        parts.append(f'z{level}')
    return (
        body
        + f"""
        all = Concat <axis = 2> ({', '.join(parts)})
        output = Transpose <perm = [0, 2, 1]> (all)
    """,
        weights,
    )


def tokens(count=16):
    """Make `x` (1, 16, 8): a patch a token, and one layer of attention with its norms."""
    return (
        """
        patches = Conv <kernel_shape = [8, 8], strides = [8, 8]> (images, patch_w)
        token_shape = Constant <value_ints = [1, 8, 16]> ()
        flat = Reshape (patches, token_shape)
        seq = Transpose <perm = [0, 2, 1]> (flat)
        placed = Add (seq, position)
        normed = LayerNormalization <axis = -1> (placed, ln_scale, ln_bias)
        q = MatMul (normed, wq)
        k = MatMul (normed, wk)
        v = MatMul (normed, wv)
        kt = Transpose <perm = [0, 2, 1]> (k)
        qk = MatMul (q, kt)
        attention = Softmax <axis = -1> (qk)
        mixed = MatMul (attention, v)
        residual = Add (placed, mixed)
        up = MatMul (residual, wu)
        erf = Erf (up)
        gelu = Mul (up, erf)
        down = MatMul (gelu, wd)
        x = Add (residual, down)
    """,
        [
            'float[8,3,8,8] patch_w',
            'float[1,16,8] position',
            'float[8] ln_scale',
            'float[8] ln_bias',
            'float[8,8] wq',
            'float[8,8] wk',
            'float[8,8] wv',
            'float[8,16] wu',
            'float[16,8] wd',
        ],
    )


def detr(classes, logits='logits', boxes='pred_boxes'):
    body, weights = tokens()
    return (
        body
        + f"""
        {logits} = MatMul (x, w_logits)
        hidden = MatMul (x, w_hidden)
        relu = Relu (hidden)
        raw = MatMul (relu, w_box)
        {boxes} = Sigmoid (raw)
    """,
        [*weights, f'float[8,{classes}] w_logits', 'float[8,8] w_hidden', 'float[8,4] w_box'],
    )


def rtdetr_queries():
    """Choose 9 queries by score, and sample the image around each: deformable attention."""
    body, weights = tokens()
    return (
        body
        + """
        encoded = MatMul (x, w_encoded)
        best = ReduceMax <axes = [-1], keepdims = 0> (encoded)
        best_scores, chosen = TopK <axis = 1> (best, nine)
        last = Constant <value_ints = [-1]> ()
        chosen_1 = Unsqueeze (chosen, last)
        tile_8 = Constant <value_ints = [1, 1, 8]> ()
        chosen_8 = Tile (chosen_1, tile_8)
        queries = GatherElements <axis = 1> (x, chosen_8)
        offsets = MatMul (queries, w_offset)
        grid_shape = Constant <value_ints = [1, 9, 2, 2]> ()
        grid = Reshape (offsets, grid_shape)
        sampled = GridSample <mode = "bilinear", padding_mode = "zeros", align_corners = 0>
            (patches, grid)
        seen = ReduceMean <axes = [3], keepdims = 0> (sampled)
        seen_rows = Transpose <perm = [0, 2, 1]> (seen)
        decoded = Add (queries, seen_rows)
        logits = MatMul (decoded, w_logits)
        raw = MatMul (decoded, w_box)
        clipped = Clip (raw, low, high)
        inverse = Sub (high, clipped)
        ratio = Div (clipped, inverse)
        unsigmoid = Log (ratio)
        pred_boxes = Sigmoid (unsigmoid)
    """,
        [
            *weights,
            'float[8,3] w_encoded',
            'float[8,4] w_offset',
            'float[8,3] w_logits',
            'float[8,4] w_box',
            'float low = {0.00001}',
            'float high = {1}',
            'int64[1] nine = {9}',
        ],
    )


def rtdetr_deployed():
    body, weights = rtdetr_queries()
    return (
        body
        + """
        cxcy, wh = Split <axis = 2> (pred_boxes, halves)
        half = Mul (wh, a_half)
        x1y1 = Sub (cxcy, half)
        x2y2 = Add (cxcy, half)
        xyxy = Concat <axis = 2> (x1y1, x2y2)
        repeats = Constant <value_ints = [1, 2]> ()
        sizes = Tile (orig_target_sizes, repeats)
        middle = Constant <value_ints = [1]> ()
        sizes_1 = Unsqueeze (sizes, middle)
        sizes_f = Cast <to = 1> (sizes_1)
        pixels = Mul (xyxy, sizes_f)
        probabilities = Sigmoid (logits)
        flat_scores = Flatten <axis = 1> (probabilities)
        scores, index = TopK <axis = -1> (flat_scores, nine)
        classes = Constant <value_ints = [3]> ()
        labels = Mod (index, classes)
        row = Div (index, classes)
        row_1 = Unsqueeze (row, last)
        tile_4 = Constant <value_ints = [1, 1, 4]> ()
        row_4 = Tile (row_1, tile_4)
        boxes = GatherElements <axis = 1> (pixels, row_4)
    """,
        [*weights, 'int64[2] halves = {2, 2}', 'float a_half = {0.5}'],
    )


def priors(scores, boxes, activation):
    """Make (1, 16, 4) corners by priors, and (1, 16, 3) scores."""
    return (
        FEATURES
        + f"""
        raw_scores = Conv (p3, w_scores)
        scores_last = Transpose <perm = [0, 2, 3, 1]> (raw_scores)
        scores_shape = Constant <value_ints = [1, -1, 3]> ()
        flat_scores = Reshape (scores_last, scores_shape)
        {scores} = {activation} (flat_scores)
        raw_boxes = Conv (p3, w_boxes)
        boxes_last = Transpose <perm = [0, 2, 3, 1]> (raw_boxes)
        boxes_shape = Constant <value_ints = [1, -1, 4]> ()
        flat_boxes = Reshape (boxes_last, boxes_shape)
        d_xy, d_wh = Split <axis = 2> (flat_boxes, halves)
        moved = Mul (d_xy, prior_wh)
        centre = Add (moved, prior_xy)
        grown = Exp (d_wh)
        size = Mul (grown, prior_wh)
        half = Mul (size, a_half)
        low = Sub (centre, half)
        high = Add (centre, half)
        {boxes} = Concat <axis = 2> (low, high)
    """,
        [
            'float[3,3,1,1] w_scores',
            'float[4,3,1,1] w_boxes',
            'int64[2] halves = {2, 2}',
            'float[1,16,2] prior_xy',
            'float[1,16,2] prior_wh',
            'float a_half = {0.5}',
        ],
    )


def detectnet():
    return (
        """
        grid = Conv <kernel_shape = [16, 16], strides = [16, 16]> (images, w)
        relu = Relu (grid)
        raw = Conv (relu, w_cov)
        output_cov = Sigmoid (raw)
        output_bbox = Conv (relu, w_box)
    """,
        ['float[8,3,16,16] w', 'float[3,8,1,1] w_cov', 'float[12,8,1,1] w_box'],
    )


def onnx_nms(chosen):
    body, weights = priors('class_scores', 'boxes', 'Sigmoid')
    return (
        body
        + f"""
        scores = Transpose <perm = [0, 2, 1]> (class_scores)
        {chosen} = NonMaxSuppression (boxes, scores, most, most_iou, least_score)
    """,
        [
            *weights,
            'int64[1] most = {20}',
            'float[1] most_iou = {0.5}',
            'float[1] least_score = {0.1}',
        ],
    )


def efficient_nms():
    body, weights = priors('class_scores', 'boxes', 'Sigmoid')
    return (
        body
        + """
        num_dets, det_boxes, det_scores, det_classes = TRT.EfficientNMS_TRT
            <background_class = -1, box_coding = 0, iou_threshold = 0.5, max_output_boxes = 20,
             plugin_version = "1", score_activation = 0, score_threshold = 0.1>
            (boxes, class_scores)
    """,
        weights,
    )


def torchvision():
    """What its detectors have before NMS: scores above a threshold, as NonZero."""
    body, weights = priors('class_scores', 'all_boxes', 'Sigmoid')
    return (
        body
        + """
        passes = Greater (class_scores, a_half)
        where = NonZero (passes)
        rows = Transpose <perm = [1, 0]> (where)
        scores = GatherND (class_scores, rows)
        boxes = ReduceMax <axes = [0], keepdims = 0> (all_boxes)
    """,
        weights,
    )


def dense(tail, weights=()):
    """Three channels a pixel, at the image's size."""
    return (
        FEATURES
        + f"""
        low = Conv (p3, w_low)
        sizes = Constant <value_ints = [1, 3, 32, 32]> ()
        {tail}
    """,
        ['float[3,3,1,1] w_low', *weights],
    )


BILINEAR = (
    'Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (low, , , sizes)'
)


def heatmaps():
    return (
        FEATURES
        + """
        up = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (p3, w_up)
        relu = Relu (up)
        heatmaps = Conv (relu, w_points)
    """,
        ['float[3,8,4,4] w_up', 'float[17,8,1,1] w_points'],
    )


def simcc():
    return (
        FEATURES
        + """
        points = Conv (p3, w_points)
        flat = Constant <value_ints = [1, 17, 16]> ()
        rows = Reshape (points, flat)
        simcc_x = MatMul (rows, w_x)
        simcc_y = MatMul (rows, w_y)
    """,
        ['float[17,3,1,1] w_points', 'float[16,64] w_x', 'float[16,64] w_y'],
    )


def depth(output):
    body, weights = tokens()
    return (
        body
        + f"""
        back = Transpose <perm = [0, 2, 1]> (x)
        map_shape = Constant <value_ints = [1, 8, 4, 4]> ()
        map = Reshape (back, map_shape)
        wide = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (map, w_up)
        sizes = Constant <value_ints = [1, 8, 32, 32]> ()
        large = Resize <mode = "linear", coordinate_transformation_mode = "align_corners">
            (wide, , , sizes)
        one = Conv (large, w_one)
        positive = Relu (one)
        {output}
    """,
        [*weights, 'float[8,8,2,2] w_up', 'float[1,8,1,1] w_one'],
    )


def pooled(tail, weights):
    return (
        f"""
        c = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (images, w)
        r = Relu (c)
        p = GlobalAveragePool (r)
        f = Flatten <axis = 1> (p)
        {tail}
    """,
        ['float[8,3,3,3] w', *weights],
    )


GEMM = 'float[3,8] w_out', 'float[3] b_out'
# tensorrt_rtx cannot build their last operator, so it is cut off.
CUT = {'onnx_nms', 'yolov3', 'efficient_nms'}
# (Family, inputs beside the image, outputs, network, metadata, classes that the user names)
BUILDS = [
    ('yolov8', '', 'float[1,7,21] output0', yolov8(), {**ULTRALYTICS, 'task': 'detect'}, None),
    (
        'yolov10',
        '',
        'float[1,9,6] output0',
        yolov10(),
        {**ULTRALYTICS, 'task': 'detect', 'end2end': 'True'},
        None,
    ),
    ('yolov5', '', 'float[1,63,8] output0', yolov5(), ULTRALYTICS, None),
    ('yolox', '', 'float[1,21,8] output', yolox(), {}, None),
    ('rtdetr', '', 'float[1,9,3] logits, float[1,9,4] pred_boxes', rtdetr_queries(), {}, 3),
    (
        'rtdetr',
        ', int64[1,2] orig_target_sizes',
        'int64[1,9] labels, float[1,9,4] boxes, float[1,9] scores',
        rtdetr_deployed(),
        {},
        None,
    ),
    ('detr', '', 'float[1,16,4] logits, float[1,16,4] pred_boxes', detr(4), {}, 3),
    (
        'rfdetr',
        '',
        'float[1,16,4] dets, float[1,16,3] labels',
        detr(3, 'labels', 'dets'),
        {},
        None,
    ),
    (
        'ssd',
        '',
        'float[1,16,3] scores, float[1,16,4] boxes',
        priors('scores', 'boxes', 'Softmax <axis = 2>'),
        {},
        2,
    ),
    (
        'boxes',
        '',
        'float[1,16,4] boxes, float[1,16,3] scores',
        priors('scores', 'boxes', 'Sigmoid'),
        {},
        None,
    ),
    (
        'boxes_normalised',
        '',
        'float[1,16,4] boxes, float[1,16,3] scores',
        priors('scores', 'boxes', 'Sigmoid'),
        {},
        None,
    ),
    (
        'detectnet_v2',
        '',
        'float[1,3,2,2] output_cov, float[1,12,2,2] output_bbox',
        detectnet(),
        {},
        None,
    ),
    (
        'onnx_nms',
        '',
        'int64[n,3] chosen, float[1,16,4] boxes, float[1,3,16] scores',
        onnx_nms('chosen'),
        {},
        None,
    ),
    (
        'yolov3',
        ', float[n,2] image_shape',
        'int64[n,3] chosen, float[1,16,4] boxes, float[1,3,16] scores',
        onnx_nms('chosen'),
        {},
        None,
    ),
    (
        'efficient_nms',
        '',
        'int32[1,1] num_dets, float[1,20,4] det_boxes, float[1,20] det_scores, '
        'int32[1,20] det_classes',
        efficient_nms(),
        {},
        None,
    ),
    (
        'yolov8_seg',
        '',
        'float[1,15,21] output0, float[1,8,8,8] output1',
        yolov8_seg(),
        {**ULTRALYTICS, 'task': 'segment'},
        None,
    ),
    (
        'yolov8_pose',
        '',
        'float[1,56,21] output0',
        yolov8_pose(),
        {'task': 'pose', 'kpt_shape': '[17, 3]', 'names': "{0: 'person'}"},
        None,
    ),
    ('heatmap_pose', '', 'float[1,17,8,8] heatmaps', heatmaps(), {}, None),
    ('simcc', '', 'float[1,17,64] simcc_x, float[1,17,64] simcc_y', simcc(), {}, None),
    (
        'yolov8_obb',
        '',
        'float[1,8,21] output0',
        yolov8_obb(),
        {**ULTRALYTICS, 'task': 'obb'},
        None,
    ),
    ('semantic', '', 'float[1,3,32,32] out', dense(f'out = {BILINEAR}'), {}, None),
    (
        'semantic',
        '',
        'int64[1,32,32] out',
        dense(f'large = {BILINEAR}\n out = ArgMax <axis = 1, keepdims = 0> (large)'),
        {},
        None,
    ),
    (
        'yolo_semantic',
        '',
        'uint8[1,32,32] output0',
        dense(
            f'large = {BILINEAR}\n index = ArgMax <axis = 1, keepdims = 0> (large)\n'
            'output0 = Cast <to = 2> (index)'
        ),
        {**ULTRALYTICS, 'task': 'semantic'},
        None,
    ),
    (
        'classifier',
        '',
        'float[1,3] logits',
        pooled('logits = Gemm <transB = 1> (f, w_out, b_out)', GEMM),
        {},
        None,
    ),
    (
        'yolov8_cls',
        '',
        'float[1,3] output0',
        pooled('g = Gemm <transB = 1> (f, w_out, b_out)\n output0 = Softmax <axis = 1> (g)', GEMM),
        {**ULTRALYTICS, 'task': 'classify'},
        None,
    ),
    (
        'depth',
        '',
        'float[1,32,32] predicted_depth',
        depth('at = Constant <value_ints = [1]> ()\n predicted_depth = Squeeze (positive, at)'),
        {},
        None,
    ),
    (
        'yolo_depth',
        '',
        'float[1,1,32,32] output0',
        depth('output0 = Identity (positive)'),
        {'task': 'depth'},
        None,
    ),
    (
        'embedding',
        '',
        'float[1,8] image_embeds',
        pooled('n = ReduceL2 <axes = [-1], keepdims = 1> (f)\n image_embeds = Div (f, n)', ()),
        {},
        None,
    ),
]


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
        small = value.name[:2] in ('wr', 'wo', 'wc')  # YOLOX takes pixels of 0 to 255.
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


def built_network(path, flavour, class_count=None):
    """Build, and say what is known of the engine as a runner would."""
    built = build(path, BuildOptions(), flavour)
    try:
        plan = built.plan.read()
    finally:
        built.close()
    assert parse_plan_header(plan[:64]).nbytes == len(plan)
    inputs, outputs = (
        tuple(TensorSpec(**{**each, 'shape': tuple(each['shape'])}) for each in built.report[mode])
        for mode in ('inputs', 'outputs')
    )
    return NetworkDescription(inputs, outputs, built.report['metadata'], (32, 32), class_count)


@pytest.mark.parametrize(
    ('family', 'inputs', 'outputs', 'network', 'metadata', 'named'),
    BUILDS,
    ids=[f'{row[0]}-{index}' for index, row in enumerate(BUILDS)],
)
def test_an_engine_is_built_and_recognised(
    tmp_path, rtx, family, inputs, outputs, network, metadata, named
):
    path = write(tmp_path, inputs, outputs, network, metadata)
    engine = built_network(path, rtx, metadata.get('names', '').count(':') or named)
    if family in CUT:
        outputs = 'float[1,16,4] nms_boxes, float[1,16,3] nms_scores'
    assert ','.join(map(str, engine.outputs)).replace(') ', ')').replace(' ', '') == declared(
        outputs
    ).replace(' ', '')
    assert recognise(family, engine)
    FAMILIES[family].open(engine)


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
    'semantic',
}


@pytest.mark.gpu
@pytest.mark.parametrize(
    ('family', 'inputs', 'outputs', 'network', 'metadata', 'named'),
    BUILDS,
    ids=[f'{row[0]}-{index}' for index, row in enumerate(BUILDS)],
)
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
        opened = open_engine(path, BuildOptions(), cache_dir=tmp_path)
        engine = opened.engine
        chosen = decoder.choose_decoder(
            family,
            engine.inputs,
            engine.outputs,
            engine.metadata,
            (32, 32),
            named,
            families=(FAMILIES[family],),
        )
        with closing(
            GraphPipeline.open(
                engine,
                Fitted.of_image(engine, Preprocess((32, 32), **chosen.preprocess), chosen),
                cache=opened.runtime_cache,
            )
        ) as pipeline:
            for _ in range(3):
                result = pipeline.infer(frame, Thresholds(score=0.0, iou=0.6, max_detections=50))
            found.append(result)
            on_gpu = on_gpu and family in ON_GPU and '64[1,32' not in outputs
            assert f'decoding on the {"GPU" if on_gpu else "CPU"}' in pipeline.log_lines[-1]
    got, want = ({'it': each} if not is_dataclass(each) else vars(each) for each in found)
    assert_alike(got, want)
    if family in ON_GPU - {'semantic'}:
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
        else:
            assert len(got[name]) == len(value)
            assert all(map(np.array_equal, got[name], value))


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
    assert {row[0] for row in BUILDS} == FAMILIES.keys()


def test_torchvision_loops_before_nms_are_refused_with_remedy(tmp_path, rtx):
    path = write(tmp_path, '', 'float[16,4] boxes, float[n] scores', torchvision(), {})
    with pytest.raises(ModelError, match=r'the operator NonZero .*\n.*onnxruntime'):
        build(path, BuildOptions(), rtx)
