"""SSD, DetectNet, NMS inside, dense and pooled outputs in the text form of ONNX."""

from support.networks.detr import tokens
from support.networks.yolo import FEATURES


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
        center = Add (moved, prior_xy)
        grown = Exp (d_wh)
        size = Mul (grown, prior_wh)
        half = Mul (size, a_half)
        low = Sub (center, half)
        high = Add (center, half)
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
    return _suppressed(chosen, *priors('class_scores', 'boxes', 'Sigmoid'))


def yolov3():
    """Make boxes in pixels of the image, whose height and width are an input."""
    body, weights = priors('class_scores', 'shares', 'Sigmoid')
    body += """
        y, x = Split <axis = 1> (image_shape, one_one)
        yxyx = Concat <axis = 1> (y, x, y, x)
        at = Constant <value_ints = [1]> ()
        sizes = Unsqueeze (yxyx, at)
        boxes = Mul (shares, sizes)
    """
    return _suppressed('chosen', body, [*weights, 'int64[2] one_one = {1, 1}'])


def _suppressed(chosen, body, weights):
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


def faces(parts, per_cell):
    """
    Make outputs NAME_8, NAME_16 and NAME_32, each (1, N, size).

    :param parts: name and size of each kind; sizes of 1 and 2 are scores.
    """
    names, size = list(parts), sum(parts.values())
    body, weights = (
        FEATURES,
        [f'int64[{len(parts)}] parts = {{{", ".join(map(str, parts.values()))}}}'],
    )
    for level, stride in ('3', 8), ('4', 16), ('5', 32):
        raw = [f'{name}_{"raw_" if parts[name] < 3 else ""}{stride}' for name in names]
        body += f"""
            h{level} = Conv (p{level}, w{level})
            l{level} = Transpose <perm = [0, 2, 3, 1]> (h{level})
            a{level} = Constant <value_ints = [1, -1, {size}]> ()
            r{level} = Reshape (l{level}, a{level})
            {', '.join(raw)} = Split <axis = 2> (r{level}, parts)
        """
        body += ''.join(
            f'{name}_{stride} = Sigmoid ({name}_raw_{stride})\n'
            for name in names
            if parts[name] < 3
        )
        weights.append(f'float[{size * per_cell},3,1,1] w{level}')
    return body, weights


def retinaface():
    body, weights = faces({'loc': 4, 'conf': 2, 'landms': 10}, 2)
    return (
        body
        + '\n'.join(
            f'{name} = Concat <axis = 1> ({part}_8, {part}_16, {part}_32)'
            for name, part in (('raw', 'loc'), ('conf', 'conf'), ('landms', 'landms'))
        )
        + """
        twentieth = Constant <value_float = 0.05> ()
        loc = Mul (raw, twentieth)
    """,
        weights,
    )


def rows_of(sizes, rows, weight='w'):
    """Make outputs (1, rows, size) from the mean color; those of 1 and 2 are scores."""
    body, weights = FEATURES + 'flat = Flatten <axis = 1> (p5)\n', []
    for name, size in sizes.items():
        last = 'Sigmoid' if size < 3 else 'Identity'
        body += f"""
            all_{name} = MatMul (flat, {weight}_{name})
            shape_{name} = Constant <value_ints = [1, {rows}, {size}]> ()
            raw_{name} = Reshape (all_{name}, shape_{name})
            {name} = {last} (raw_{name})
        """
        weights.append(f'float[3,{rows * size}] {weight}_{name}')
    return body, weights


def grids_of(sizes, stride, weight='w'):
    """Make outputs (1, size, h, w); `hm` and `out` are scores."""
    window = [stride, stride]
    body = f'cells = AveragePool <kernel_shape = {window}, strides = {window}> (images)\n'
    weights = []
    for name, size in sizes.items():
        last = 'Sigmoid' if name in ('hm', 'out') else 'Identity'
        body += f'raw_{name} = Conv (cells, {weight}_{name})\n{name} = {last} (raw_{name})\n'
        weights.append(f'float[{size},3,1,1] {weight}_{name}')
    return body, weights


def palms():
    """Make boxes with seven landmarks and logits, of two and six anchors per cell."""
    body, weights, parts = FEATURES, [], {'boxes': [], 'scores': []}
    for level, per_cell in ('3', 2), ('4', 6):
        for name, size in ('boxes', 18), ('scores', 1):
            body += f"""
                h{name}{level} = Conv (p{level}, w{name}{level})
                l{name}{level} = Transpose <perm = [0, 2, 3, 1]> (h{name}{level})
                a{name}{level} = Constant <value_ints = [1, -1, {size}]> ()
                r{name}{level} = Reshape (l{name}{level}, a{name}{level})
            """
            weights.append(f'float[{size * per_cell},3,1,1] w{name}{level}')
            parts[name].append(f'r{name}{level}')
    return body + '\n'.join(
        f'{name} = Concat <axis = 1> ({", ".join(names)})' for name, names in parts.items()
    ), weights


def mmdetection():
    body, weights = priors('scores', 'boxes', 'Sigmoid')
    return (
        body
        + """
        best = ReduceMax <axes = [2], keepdims = 1> (scores)
        dets = Concat <axis = 2> (boxes, best)
        labels = ArgMax <axis = 2, keepdims = 0> (scores)
    """,
        weights,
    )


def tensorflow():
    body, weights = priors('scores', 'codes', 'Sigmoid')
    return (
        body
        + """
        corners = Sigmoid (codes)
        near, far = Split <axis = 2> (corners)
        middle = Constant <value_float = 0.5> ()
        first = Mul (near, middle)
        rest = Mul (far, middle)
        second = Add (rest, middle)
        detection_boxes = Concat <axis = 2> (first, second)
        detection_scores = ReduceMax <axes = [2], keepdims = 0> (scores)
        index = ArgMax <axis = 2, keepdims = 0> (scores)
        detection_classes = Cast <to = 1> (index)
    """,
        weights,
    )


def paddle(is_finished):
    """Make boxes divided by the scale of the image, and (1, 3, 16) scores: PP-YOLOE."""
    body, weights = priors('class_scores', 'pixels', 'Sigmoid')
    body += """
        y, x = Split <axis = 1> (scale_factor, one_one)
        xyxy = Concat <axis = 1> (x, y, x, y)
        at = Constant <value_ints = [1]> ()
        by = Unsqueeze (xyxy, at)
        boxes = Div (pixels, by)
        scores = Transpose <perm = [0, 2, 1]> (class_scores)
    """
    weights = [*weights, 'int64[2] one_one = {1, 1}']
    if not is_finished:
        return body, weights
    return (
        body
        + """
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
    """,
        [
            *weights,
            'int64[3] ones = {1, 1, 1}',
            'int64[1] zero = {0}',
            'int64[1] one = {1}',
            'int64[1] most = {20}',
            'float[1] most_iou = {0.5}',
            'float[1] least_score = {0.1}',
        ],
    )


def centernet():
    """Make grids of 8 x 8 cells, the sizes in cells."""
    return (
        """
        features = AveragePool <kernel_shape = [4, 4], strides = [4, 4]> (images)
        hm = Conv (features, w_hm)
        raw = Conv (features, w_wh)
        wh = Relu (raw)
        reg = Conv (features, w_reg)
    """,
        ['float[3,3,1,1] w_hm', 'float[2,3,1,1] w_wh', 'float[2,3,1,1] w_reg'],
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


def ufld():
    """Flatten features, and compute the columns of all rows and lanes in one product."""
    return (
        FEATURES
        + """
        few = Conv (p3, w_few)
        flat_shape = Constant <value_ints = [-1, 32]> ()
        flat = Reshape (few, flat_shape)
        hidden = Gemm <transB = 1> (flat, w_hidden, b_hidden)
        relu = Relu (hidden)
        product = Gemm <transB = 1> (relu, w_out, b_out)
        out_shape = Constant <value_ints = [-1, 11, 18, 4]> ()
        out = Reshape (product, out_shape)
    """,
        [
            'float[2,3,1,1] w_few',
            'float[8,32] w_hidden',
            'float[8] b_hidden',
            'float[792,8] w_out',
            'float[792] b_out',
        ],
    )


def ufld_v2(rows, columns, cells=11):
    """Compute all values of lanes in one product, and cut it into the four outputs."""
    sizes = {
        'loc_row': (cells, rows),
        'loc_col': (cells, columns),
        'exist_row': (2, rows),
        'exist_col': (2, columns),
    }
    counts = [4 * first * second for first, second in sizes.values()]
    body = (
        FEATURES
        + f"""
        few = Conv (p3, w_few)
        flat_shape = Constant <value_ints = [-1, 32]> ()
        flat = Reshape (few, flat_shape)
        hidden = Gemm <transB = 1> (flat, w_hidden, b_hidden)
        relu = Relu (hidden)
        product = Gemm <transB = 1> (relu, w_out, b_out)
        counts = Constant <value_ints = {counts}> ()
        {', '.join(f'flat_{name}' for name in sizes)} = Split <axis = 1> (product, counts)
    """
    )
    for name, (first, second) in sizes.items():
        body += f"""
        shape_{name} = Constant <value_ints = [-1, {first}, {second}, 4]> ()
        {name} = Reshape (flat_{name}, shape_{name})
        """
    return body, [
        'float[2,3,1,1] w_few',
        'float[8,32] w_hidden',
        'float[8] b_hidden',
        f'float[{sum(counts)},8] w_out',
        f'float[{sum(counts)}] b_out',
    ]


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


def lstr():
    """Leave padded cells out; curves share four of their parameters, the mean over the queries."""
    return (
        FEATURES
        + """
        few = Conv (p3, w_few)
        sizes = Constant <value_ints = [1, 1, 4, 4]> ()
        small = Resize <mode = "nearest"> (mask, , , sizes)
        one = Constant <value_float = 1.0> ()
        inside = Sub (one, small)
        kept = Mul (few, inside)
        flat_shape = Constant <value_ints = [-1, 32]> ()
        flat = Reshape (kept, flat_shape)
        hidden = Gemm <transB = 1> (flat, w_hidden, b_hidden)
        query_shape = Constant <value_ints = [-1, 7, 8]> ()
        queries = Reshape (hidden, query_shape)
        pred_logits = MatMul (queries, w_class)
        own = MatMul (queries, w_own)
        each = MatMul (queries, w_shared)
        mean = ReduceMean <axes = [1], keepdims = 1> (each)
        repeats = Constant <value_ints = [1, 7, 1]> ()
        shared = Tile (mean, repeats)
        ends, rest = Split <axis = 2> (own)
        pred_curves = Concat <axis = 2> (ends, shared, rest)
    """,
        [
            'float[2,3,1,1] w_few',
            'float[56,32] w_hidden',
            'float[56] b_hidden',
            'float[8,2] w_class',
            'float[8,4] w_own',
            'float[8,4] w_shared',
        ],
    )
