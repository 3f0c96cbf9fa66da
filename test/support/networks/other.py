"""SSD, DetectNet, NMS inside, dense and pooled outputs in the text form of ONNX."""

from support.networks.detr import tokens
from support.networks.yolo import FEATURES

NMS = [
    'int64[2] one_one = {1, 1}',
    'int64[1] most = {20}',
    'float[1] most_iou = {0.5}',
    'float[1] least_score = {0.1}',
]


def priors(boxes):
    """Make (1, 16, 4) corners by priors, and (1, 16, 3) class scores."""
    body = (
        FEATURES
        + f"""
        raw_scores = Conv (p3, w_scores)
        scores_last = Transpose <perm = [0, 2, 3, 1]> (raw_scores)
        scores_shape = Constant <value_ints = [1, -1, 3]> ()
        flat_scores = Reshape (scores_last, scores_shape)
        class_scores = Sigmoid (flat_scores)
        raw_boxes = Conv (p3, w_boxes)
        boxes_last = Transpose <perm = [0, 2, 3, 1]> (raw_boxes)
        boxes_shape = Constant <value_ints = [1, -1, 4]> ()
        flat_boxes = Reshape (boxes_last, boxes_shape)
        d_xy, d_wh = Split <axis = 2> (flat_boxes, halves)
        moved = Mul (d_xy, prior_wh)
        center = Add (moved, prior_xy)
        grown = Exp (d_wh)
        size = Mul (grown, prior_wh)
        half = Mul (size, a_half)
        low = Sub (center, half)
        high = Add (center, half)
        {boxes} = Concat <axis = 2> (low, high)
    """
    )
    return body, [
        'float[3,3,1,1] w_scores',
        'float[4,3,1,1] w_boxes',
        'int64[2] halves = {2, 2}',
        'float[1,16,2] prior_xy',
        'float[1,16,2] prior_wh',
        'float a_half = {0.5}',
    ]


def yolov3():
    """Make boxes in pixels of the image, whose height and width are an input."""
    body, weights = priors('shares')
    body += """
        y, x = Split <axis = 1> (image_shape, one_one)
        yxyx = Concat <axis = 1> (y, x, y, x)
        at = Constant <value_ints = [1]> ()
        sizes = Unsqueeze (yxyx, at)
        boxes = Mul (shares, sizes)
        scores = Transpose <perm = [0, 2, 1]> (class_scores)
        chosen = NonMaxSuppression (boxes, scores, most, most_iou, least_score)
    """
    return body, [*weights, *NMS]


def paddle():
    """Divide boxes by the scale of the image, and make rows of those left by NMS: PP-YOLOE."""
    body, weights = priors('pixels')
    body += """
        y, x = Split <axis = 1> (scale_factor, one_one)
        xyxy = Concat <axis = 1> (x, y, x, y)
        at = Constant <value_ints = [1]> ()
        by = Unsqueeze (xyxy, at)
        boxes = Div (pixels, by)
        scores = Transpose <perm = [0, 2, 1]> (class_scores)
        chosen = NonMaxSuppression (boxes, scores, most, most_iou, least_score)
        image, labels, cells = Split <axis = 1> (chosen, ones)
        where = Concat <axis = 1> (image, cells)
        four = GatherND (boxes, where)
        values = GatherND (scores, chosen)
        column = Constant <value_ints = [-1, 1]> ()
        value = Reshape (values, column)
        label = Cast <to = 1> (labels)
        rows = Concat <axis = 1> (label, value, four)
        all = Shape (rows)
        count = Slice (all, zero, one)
        numbers = Cast <to = 6> (count)
    """
    return body, [
        *weights,
        *NMS,
        'int64[3] ones = {1, 1, 1}',
        'int64[1] zero = {0}',
        'int64[1] one = {1}',
    ]


def efficient_nms():
    body, weights = priors('boxes')
    body += """
        num_dets, det_boxes, det_scores, det_classes = TRT.EfficientNMS_TRT
            <background_class = -1, box_coding = 0, iou_threshold = 0.5, max_output_boxes = 20,
             plugin_version = "1", score_activation = 0, score_threshold = 0.1>
            (boxes, class_scores)
    """
    return body, weights


def torchvision():
    """What its detectors have before NMS: scores above a threshold, as NonZero."""
    body, weights = priors('all_boxes')
    body += """
        passes = Greater (class_scores, a_half)
        where = NonZero (passes)
        rows = Transpose <perm = [1, 0]> (where)
        scores = GatherND (class_scores, rows)
        boxes = ReduceMax <axes = [0], keepdims = 0> (all_boxes)
    """
    return body, weights


def semantic():
    body = """
        low = Conv (p3, w_low)
        sizes = Constant <value_ints = [1, 3, 32, 32]> ()
        large = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel">
            (low, , , sizes)
        out = ArgMax <axis = 1, keepdims = 0> (large)
    """
    return FEATURES + body, ['float[3,3,1,1] w_low']


def depth():
    body, weights = tokens()
    body += """
        back = Transpose <perm = [0, 2, 1]> (x)
        map_shape = Constant <value_ints = [1, 8, 4, 4]> ()
        map = Reshape (back, map_shape)
        wide = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (map, w_up)
        sizes = Constant <value_ints = [1, 8, 32, 32]> ()
        large = Resize <mode = "linear", coordinate_transformation_mode = "align_corners">
            (wide, , , sizes)
        one = Conv (large, w_one)
        positive = Relu (one)
        at = Constant <value_ints = [1]> ()
        predicted_depth = Squeeze (positive, at)
    """
    return body, [*weights, 'float[8,8,2,2] w_up', 'float[1,8,1,1] w_one']


def classifier():
    body = """
        c = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (images, w)
        r = Relu (c)
        p = GlobalAveragePool (r)
        f = Flatten <axis = 1> (p)
        logits = Gemm <transB = 1> (f, w_out, b_out)
    """
    return body, ['float[8,3,3,3] w', 'float[3,8] w_out', 'float[3] b_out']
