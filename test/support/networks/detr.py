"""DETR networks in the text form of ONNX, with the operators at the end of their exports."""


def tokens():
    """Make `x` (1, 16, 8): a patch a token, and one layer of attention with its norms."""
    body = """
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
    """
    return body, [
        'float[8,3,8,8] patch_w',
        'float[1,16,8] position',
        'float[8] ln_scale',
        'float[8] ln_bias',
        'float[8,8] wq',
        'float[8,8] wk',
        'float[8,8] wv',
        'float[8,16] wu',
        'float[16,8] wd',
    ]


def rtdetr_deployed():
    """Choose 9 queries by score, and sample the image around each: deformable attention."""
    body, weights = tokens()
    body += """
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
    """
    return body, [
        *weights,
        'float[8,3] w_encoded',
        'float[8,4] w_offset',
        'float[8,3] w_logits',
        'float[8,4] w_box',
        'float low = {0.00001}',
        'float high = {1}',
        'int64[1] nine = {9}',
        'int64[2] halves = {2, 2}',
        'float a_half = {0.5}',
    ]
