"""Networks of random boxes and scores with NMS, in the text form of ONNX."""

import onnx
import onnx.parser

N, C, SIZE = 200, 3, 32
# An image is as good a source of random boxes and scores as any. Some lie beside it.
HEADS = """
    flat = Reshape (images, one_row)
    raw_boxes, raw_scores, rest = Split <axis = 1> (flat, parts)
    shaped = Reshape (raw_boxes, box_shape)
    wide = Mul (shaped, forty)
    boxes = Sub (wide, four)
    scores = Reshape (raw_scores, score_shape)
    rows_of_scores = Transpose <perm = [0, 2, 1]> (scores)
"""
WEIGHTS = f"""
    int64[2] one_row = {{1, -1}}, int64[3] parts = {{{4 * N}, {C * N}, {3072 - 4 * N - C * N}}},
    int64[3] box_shape = {{1, {N}, 4}}, int64[3] score_shape = {{1, {C}, {N}}},
    float forty = {{40}}, float four = {{4}}, int64[1] most = {{9}}, float[1] most_iou = {{0.3}},
    float[1] least = {{0.2}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] zero = {{0}},
    int64[2] columns = {{0, 2}}, int64[1] three = {{3}}, float scale = {{2}},
    int64[1] all = {{{N}}}, int64[1] endless = {{9223372036854775807}}
"""
SUPPRESS = 'chosen = NonMaxSuppression (boxes, scores, most, most_iou, least)'
CHOSEN = f'int64[n,3] chosen, float[1,{N},4] boxes, float[1,{C},{N}] scores'
# As exporters do it: (image, class, box) of the choice, to boxes with scores, and classes.
PICKED = 'float[n,4] out_boxes, float[n] out_scores, int64[n] out_labels'
PICK = """
    image_and_box = Gather <axis = 1> (chosen, columns)
    out_boxes = GatherND (boxes, image_and_box)
    out_scores = GatherND (scores, chosen)
    label = Gather <axis = 1> (chosen, one)
    out_labels = Squeeze (label, one)
"""
EFFICIENT = (
    'int32[1,1] num_dets, float[1,20,4] det_boxes, float[1,20] det_scores, int32[1,20] det_classes'
)
PLUGIN = 'num_dets, det_boxes, det_scores, det_classes = '
#: Outputs and nodes of a network of two NMS.
TWO_NMS = (
    CHOSEN.replace('[n,3] chosen', '[n,3] chosen, int64[m,3] other'),
    SUPPRESS + '\n other = NonMaxSuppression (boxes, scores, most)',
)


def efficient(arguments='(boxes, rows_of_scores)', **attributes):
    """Return a node EfficientNMS_TRT."""
    given = {
        'iou_threshold': 0.3,
        'score_threshold': 0.2,
        'max_output_boxes': 20,
        'background_class': -1,
        **attributes,
    }
    text = ', '.join(f'{key} = {value}' for key, value in given.items())
    return f'{PLUGIN} EfficientNMS_TRT <{text}> {arguments}'


def write_nms(folder, outputs, tail, *, heads=HEADS, inputs='', name='model'):
    """Write a network of random boxes and scores; return its path."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,3,{SIZE},{SIZE}] images{inputs}) => ({outputs}) <{WEIGHTS}>
        {{ {heads} {tail} }}"""
    model = onnx.parser.parse_model(text)
    onnx.helper.set_model_props(model, {'names': "{0: 'a', 1: 'b', 2: 'c'}"})
    path = folder / f'{name}.onnx'
    onnx.save(model, path)
    return path
