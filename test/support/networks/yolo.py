"""YOLO networks in the text form of ONNX, with the operators at the end of their exports."""

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
    body = (
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
    """
    )
    return body, [
        *weights,
        'float[1,16,1,1] dfl_w',
        'float[1,2,21] anchors',
        'float[1,21] strides',
    ]


def yolov8_seg():
    boxes, weights = distances()
    scores, more = cells('cls', 3)
    coefficients, even_more = cells('coefficients', 8)
    body = """
        x1y1 = Sub (anchors, lt)
        x2y2 = Add (anchors, rb)
        sum = Add (x1y1, x2y2)
        half = Constant <value_float = 0.5> ()
        center = Mul (sum, half)
        size = Sub (x2y2, x1y1)
        cells_xywh = Concat <axis = 1> (center, size)
        xywh = Mul (cells_xywh, strides)
        scores = Sigmoid (cls)
        output0 = Concat <axis = 1> (xywh, scores, coefficients)
        proto = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (p3, proto_w)
        proto_sigmoid = Sigmoid (proto)
        output1 = Mul (proto, proto_sigmoid)
    """
    weights = [*weights, *more, *even_more, 'float[3,8,2,2] proto_w']
    return FEATURES + boxes + scores + coefficients + body, weights


def yolov8_obb():
    lines, weights = distances()
    scores, more = cells('cls', 3)
    angles, even_more = cells('angle_raw', 1)
    body = (
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
        center = Add (xy, anchors)
        wh = Add (lt, rb)
        cells_xywh = Concat <axis = 1> (center, wh)
        xywh = Mul (cells_xywh, strides)
        scores = Sigmoid (cls)
        output0 = Concat <axis = 1> (xywh, scores, angle)
    """
    )
    return body, [
        *weights,
        *more,
        *even_more,
        'float quarter = {0.25}',
        'float pi = {3.14159}',
        'float half = {0.5}',
        'int64[2] halves = {1, 1}',
    ]


def yolov10():
    """The two TopK of Ultralytics' end-to-end head: 9 of 21 cells, then 9 of their scores."""
    lines, weights = distances()
    scores, more = cells('cls', 3)
    body = (
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
    """
    )
    return body, [*weights, *more, 'int64[2] four_three = {4, 3}', 'int64[1] k = {9}']


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
