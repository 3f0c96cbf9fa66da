"""Networks that one family recognizes, with the evidence in the log."""

from __future__ import annotations

import json

from trt_ros.tensors import CUT_NMS


def levels(kinds, per_cell=1, batch='1, '):
    """Write outputs of each kind at strides 8, 16 and 32 of 640 x 640."""
    return '; '.join(
        f'{name}_{stride} ({batch}{per_cell * (640 // stride) ** 2}, {size})'
        for name, size in kinds.items()
        for stride in (8, 16, 32)
    )


def bins(strides, classes, size):
    """Write class scores and eight bins per side of each stride, as PicoDet does."""
    return '; '.join(
        f'{kind}_{stride} (1, {(-(-size // stride)) ** 2}, {channels})'
        for kind, channels in (('cls_pred', classes), ('dis_pred', 32))
        for stride in strides
    )


SCRFD = {'score': 1, 'bbox': 4, 'kps': 10}

COCO = {'task': 'detect', 'class_count': 80}

TWO = {'task': 'detect', 'class_count': 2}

V5 = {'stride': '32', 'class_count': 80}

NMS_INSIDE = {'args': "{'batch': 1, 'nms': True}"}

RTDETR_L = {'description': 'Ultralytics rtdetr-l model trained on coco.yaml'}

POSE = {'task': 'pose', 'kpt_shape': '[17, 3]'}

SEG = 'output0 (1, 116, 8400); output1 (1, 32, 160, 160)'

SEG_26 = 'output0 (1, 300, 38); output1 (1, 32, 160, 160)'

CUT = 'nms_boxes (1, ?, 4); nms_scores (1, ?, 3)'

DEPLOYED = 'labels (?, 300) int64; boxes (?, 300, 4); scores (?, 300)'


def cut(operator='NonMaxSuppression', inputs=''):
    return {CUT_NMS: json.dumps({'operator': operator}), 'inputs': inputs}


# Family, its classes, the end of why; and the network.
TOLD = [
    # Boxes before NMS in one output.
    (
        'yolov8',
        80,
        '80 named classes, named output0, 8400 cells of strides 8, 16 and 32',
        'output0 (1, 84, 8400)',
        COCO,
    ),
    ('yolov8', 80, 'metadata of Ultralytics, 80 named classes', 'head (1, 84, 2000)', COCO),
    (
        'yolov8',
        80,
        '8400 cells of strides 8, 16 and 32, 80 classes of COCO',
        'head (1, 84, 8400)',
        {},
    ),
    (
        'yolov8',
        80,
        '8400 cells of strides 8, 16 and 32, 80 classes of COCO',
        'head (?, 84, 8400)',
        {},
    ),
    ('yolov8', 2, '8400 cells of strides 8, 16 and 32', 'head (1, 6, 8400)', {}),
    (
        'yolov8',
        80,
        '6300 cells of strides 8, 16 and 32, 80 classes of COCO',
        'head (1, 84, 6300)',
        {'hw': (480, 640)},
    ),
    (
        'yolov8',
        80,
        '34000 cells of strides 4, 8, 16 and 32, 80 classes of COCO',
        'head (1, 84, 34000)',
        {},
    ),  # P2
    (
        'yolov8',
        80,
        '8500 cells of strides 8, 16, 32 and 64, 80 classes of COCO',
        'head (1, 84, 8500)',
        {},
    ),  # P6
    ('yolov8', 996, '21 cells of strides 8, 16 and 32', 'head (1, 1000, 21)', {'hw': (32, 32)}),
    ('yolov8', 80, '80 classes of COCO', 'head (1, 84, ?)', {}),
    ('yolov8', 80, '80 classes of COCO', 'head (?, 84, ?)', {}),
    (
        'yolov8',
        80,
        'named output0, 8400 cells of strides 8, 16 and 32, 80 classes of COCO',
        'output0 (1, 8400, 84)',
        {},
    ),
    ('yolov8', 80, 'named output0, 80 classes of COCO', 'output0 (1, ?, 84)', {}),
    (
        'yolov8',
        80,
        'metadata of Ultralytics, 80 named classes, 8400 cells of strides 8, 16 and 32',
        'head (1, 8400, 84)',
        COCO,
    ),
    (
        'yolov8',
        79,
        '79 named classes, 8400 cells of strides 8, 16 and 32',
        'output (1, 8400, 83)',
        {'class_count': 79},
    ),
    (
        'yolox',
        3,
        'named output, 8400 cells of strides 8, 16 and 32',
        'output (1, 8400, 8)',
        {},
    ),
    (
        'yolox',
        3,
        '3 named classes, 8400 cells of strides 8, 16 and 32',
        'head (1, 8400, 8)',
        {'class_count': 3},
    ),
    (
        'yolox',
        79,
        '79 named classes, 8400 cells of strides 8, 16 and 32',
        'head (1, 8400, 84)',
        {'class_count': 79},
    ),
    (
        'yolox',
        80,
        '8400 cells of strides 8, 16 and 32, 80 classes of COCO',
        'head (1, 8400, 85)',
        {},
    ),
    (
        'yolox',
        3,
        'named output, 3549 cells of strides 8, 16 and 32',
        'output (1, 3549, 8)',
        {'hw': (416, 416)},
    ),
    (
        'yolov5',
        80,
        'named output, 25200 cells of strides 8, 16 and 32, 80 classes of COCO',
        'output (1, 25200, 85)',
        {},
    ),
    (
        'yolov5',
        3,
        'metadata of YOLOv5, 25200 cells of strides 8, 16 and 32',
        'output0 (1, 25200, 8)',
        {'stride': '32'},
    ),
    (
        'yolov5',
        80,
        '102000 cells of strides 8, 16, 32 and 64, 80 classes of COCO',
        'output0 (1, 102000, 85)',
        {'hw': (1280, 1280)},
    ),  # P6
    (
        'yolov5',
        80,
        'named output, 18900 cells of strides 8, 16 and 32, 80 classes of COCO',
        'output (1, 18900, 85)',
        {'hw': (480, 640)},
    ),
    (
        'yolov5',
        80,
        'named outputs, 8400 cells of strides 8, 16 and 32, 80 classes of COCO',
        'outputs (1, 8400, 85)',
        {},
    ),
    (
        'yolov5',
        1,
        'named outputs, 8500 cells of strides 8, 16, 32 and 64',
        'outputs (1, 8500, 6)',
        {},
    ),
    ('yolov5', 80, 'metadata of YOLOv5, 80 named classes', 'output0 (1, ?, 85)', V5),
    ('yolov5', 1, 'named output, 25200 cells of strides 8, 16 and 32', 'output (1, 25200, 6)', {}),
    (
        'yolov5',
        1,
        'metadata of YOLOv5, 1 named class',
        'output0 (1, ?, 6)',
        {'stride': '32', 'class_count': 1},
    ),
    # Distances as distributions.
    (
        'nanodet_plus',
        80,
        'named output, 2125 cells of strides 8, 16, 32 and 64, 80 classes of COCO',
        'output (1, 2125, 112)',
        {'hw': (320, 320)},
    ),
    (
        'nanodet_plus',
        10,
        'named output, 3598 cells of strides 8, 16, 32 and 64',
        'output (1, 3598, 42)',
        {'hw': (416, 416)},
    ),
    (
        'nanodet_plus',
        9,
        '9 named classes, 3598 cells of strides 8, 16, 32 and 64',
        'a (1, 3598, 41)',
        {'hw': (416, 416), 'class_count': 9},
    ),
    (
        'nanodet_plus',
        80,
        '8500 cells of strides 8, 16, 32 and 64, 80 classes of COCO',
        'head (1, 8500, 112)',
        {},
    ),
    (
        'nanodet',
        80,
        'named output, 2100 cells of strides 8, 16 and 32, 80 classes of COCO',
        'output (1, 2100, 112)',
        {'hw': (320, 320)},
    ),
    (
        'nanodet',
        7,
        '7 named classes, named output, 3549 cells of strides 8, 16 and 32',
        'output (1, 3549, 51)',
        {'hw': (416, 416), 'class_count': 7},
    ),
    (
        'nanodet',
        80,
        'cells of strides 8, 16 and 32, 80 classes of COCO',
        bins((8, 16, 32), 80, 320),
        {'hw': (320, 320)},
    ),
    (
        'picodet',
        80,
        'cells of strides 8, 16, 32 and 64, 80 classes of COCO',
        bins((8, 16, 32, 64), 80, 416),
        {'hw': (416, 416)},
    ),
    (
        'picodet',
        32,
        'cells of strides 8, 16, 32 and 64',
        bins((8, 16, 32, 64), 32, 320),
        {'hw': (320, 320)},
    ),
    (
        'picodet',
        80,
        '2125 cells of strides 8, 16, 32 and 64, 80 classes of COCO',
        'tmp_0 (1, 2125, 4); concat_3.tmp_0 (1, 80, 2125)',
        {'hw': (320, 320)},
    ),
    # Finished boxes in one output.
    (
        'yolov10',
        None,
        'metadata of Ultralytics, NMS in the metadata, named output0',
        'output0 (1, 300, ?)',
        {**TWO, 'end2end': 'True'},
    ),
    (
        'yolov10',
        None,
        'metadata of Ultralytics, NMS in the metadata, named output0',
        'output0 (1, 300, 6)',
        {**TWO, 'end2end': 'True'},
    ),
    (
        'yolov10',
        None,
        'metadata of Ultralytics, NMS in the metadata, named output0',
        'output0 (1, 300, ?)',
        {**COCO, **NMS_INSIDE},
    ),
    (
        'yolov10',
        None,
        'metadata of Ultralytics, NMS in the metadata, named output0',
        'output0 (1, 300, 6)',
        {**COCO, **NMS_INSIDE},
    ),
    ('yolov10', None, 'named output0', 'output0 (1, 300, 6)', {}),
    ('yolov10', None, 'metadata of Ultralytics, named output0', 'output0 (1, 300, 6)', COCO),
    # Queries.
    (
        'rtdetr',
        None,
        'input orig_target_sizes',
        DEPLOYED,
        {'inputs': 'orig_target_sizes (?, 2) int64'},
    ),
    (
        'rtdetr',
        2,
        'RT-DETR in the metadata, 2 named classes, named output0',
        'output0 (1, 300, 6)',
        {**TWO, **RTDETR_L},
    ),
    (
        'rtdetr',
        None,
        'RT-DETR in the metadata, named output0',
        'output0 (?, ?, 6)',
        {**TWO, 'head': 'RTDETRDecoder'},
    ),
    (
        'rtdetr',
        None,
        'RT-DETR in the metadata, named output0',
        'output0 (1, 300, 6)',
        {**COCO, 'head': 'RTDETRDecoder', 'end2end': 'False'},
    ),
    ('rtdetr', 80, '80 named classes, named output0', 'output0 (1, 300, 84)', COCO),
    (
        'rtdetr',
        3,
        '3 named classes, named logits, pred_boxes',
        'logits (1, 300, 3); pred_boxes (1, 300, 4)',
        {'class_count': 3},
    ),
    (
        'rtdetr',
        80,
        'named logits, pred_boxes, 80 classes of COCO',
        'logits (1, 300, 80); pred_boxes (1, 300, 4)',
        {},
    ),
    (
        'rtdetr',
        80,
        'named pred_logits, pred_boxes, 80 classes of COCO',
        'pred_logits (1, 300, 80); pred_boxes (1, 300, 4); last (1, 300, 256)',
        {},
    ),
    (
        'detr',
        3,
        '3 named classes, named pred_logits, pred_boxes',
        'pred_logits (1, 100, 4); pred_boxes (1, 100, 4)',
        {'class_count': 3},
    ),
    (
        'detr',
        91,
        'named logits, pred_boxes, 91 classes of COCO',
        'logits (1, 100, 92); pred_boxes (1, 100, 4)',
        {},
    ),
    (
        'rfdetr',
        91,
        'named labels, dets',
        'dets (1, 300, 4); labels (1, 300, 91)',
        {},
    ),
    (
        'rfdetr',
        3,
        '3 named classes, named labels, dets',
        'dets (1, 300, 4); labels (1, 300, 4)',
        {'class_count': 3},
    ),  # Of one's own: the last is none.
    (
        'rfdetr',
        4,
        '4 named classes, named labels, dets',
        'dets (1, 300, 4); labels (1, 300, 4)',
        {'class_count': 4},
    ),
    # Boxes with scores.
    (
        'ssd',
        20,
        '20 named classes, named boxes, scores',
        'scores (1, 99, 21); boxes (1, 99, 4)',
        {'class_count': 20},
    ),
    (
        'ssd',
        3,
        '3000 priors, named boxes, scores',
        'scores (1, 3000, 4); boxes (1, 3000, 4)',
        {'hw': (300, 300)},
    ),
    (
        'efficient_nms',
        3,
        'EfficientNMS_TRT was cut off',
        CUT,
        cut('EfficientNMS_TRT'),
    ),
    (
        'efficient_nms',
        None,
        'no evidence but the shape',
        'num_dets (1, 1) int32; '
        'det_boxes (1, 100, 4); det_scores (1, 100); det_classes (1, 100) int32',
        {},
    ),
    (
        'efficient_nms',
        None,
        'no evidence but the shape',
        'num_dets (?, 1) int64; boxes (?, 100, 4); scores (?, 100); labels (?, 100) int32',
        {},
    ),  # MMYOLO
    (
        'efficient_nms',
        None,
        'no evidence but the shape',
        'num_detections (1, 1) int32; '
        'nmsed_boxes (1, 100, 4); nmsed_scores (1, 100); nmsed_classes (1, 100)',
        {},
    ),  # BatchedNMS
    (
        'onnx_nms',
        3,
        'NonMaxSuppression was cut off',
        CUT,
        cut(),
    ),
    (
        'onnx_nms',
        80,
        '80 classes of COCO',
        'selected_indices (?, 3) int64; boxes (1, 8400, 4); scores (1, 80, 8400)',
        {},
    ),
    (
        'onnx_nms',
        4,
        'no evidence but the shape',
        'chosen (?, 3) int64; boxes (1, 4, 4); scores (1, 4, 4)',
        {},
    ),
    (
        'yolov3',
        3,
        'NonMaxSuppression was cut off, input image_shape',
        CUT,
        cut(inputs='image_shape (1, 2)'),
    ),
    (
        'yolov3',
        80,
        'input image_shape, 80 classes of COCO',
        'yolonms_layer_1 (1, ?, 4); yolonms_layer_1:1 (1, 80, ?); yolonms_layer_1:2 (?, 3) int32',
        {'inputs': 'image_shape (1, 2)', 'hw': (416, 416)},
    ),
    (
        'boxes',
        None,
        'named boxes, scores',
        'boxes (?, 4); labels (?) int64; scores (?)',
        {},
    ),
    (
        'boxes',
        80,
        '8400 cells of strides 8, 16 and 32, 80 classes of COCO, named boxes, scores',
        'boxes (1, 8400, 4); scores (1, 8400, 80)',
        {},
    ),  # YOLO-NAS
    (
        'mmdetection',
        None,
        'no evidence but the shape',
        'dets (1, 100, 5); labels (1, 100) int64',
        {'class_count': 80},
    ),
    ('mmdetection', None, 'no evidence but the shape', 'labels (?, ?) int32; dets (?, ?, 5)', {}),
    (
        'tensorflow',
        None,
        'named detection_boxes, detection_scores, detection_classes, num_detections',
        'detection_boxes (1, 100, 4); detection_classes (1, 100); detection_scores (1, 100); '
        'num_detections (1)',
        {},
    ),
    (
        'tensorflow',
        None,
        'named detection_boxes:0, detection_scores:0, detection_classes:0',
        'detection_boxes:0 (1, 100, 4); detection_classes:0 (1, 100); '
        'detection_scores:0 (1, 100); raw_detection_boxes:0 (1, 1917, 4)',
        {'class_count': 90},
    ),
    # Grids.
    (
        'yolov5_raw',
        80,
        'metadata of YOLOv5, 80 named classes, cells of strides 8, 16 and 32',
        'a (1, 3, 80, 80, 85); b (1, 3, 40, 40, 85); c (1, 3, 20, 20, 85)',
        V5,
    ),
    (
        'detectnet_v2',
        3,
        'no evidence but the shape',
        'output_cov/Sigmoid:0 (?, 3, 34, 60); output_bbox/BiasAdd:0 (?, 12, 34, 60)',
        {'hw': (544, 960)},
    ),
    (
        'detectnet_v2',
        1,
        'no evidence but the shape',
        'output_bbox (1, 4, 23, 40); output_cov (1, 1, 23, 40)',
        {'hw': (368, 640)},
    ),
    (
        'centernet',
        80,
        'named hm',
        'hm (1, 80, 128, 128); wh (1, 2, 128, 128); reg (1, 2, 128, 128)',
        {'hw': (512, 512)},
    ),
    # Other tasks.
    (
        'yolov5_seg',
        80,
        '80 named classes, named output0, 25200 cells of strides 8, 16 and 32',
        'output0 (1, 25200, 117); output1 (1, 32, 160, 160)',
        V5,
    ),
    (
        'yolov5_seg',
        1,
        'named output0, 25200 cells of strides 8, 16 and 32',
        'output0 (1, 25200, 38); output1 (1, 32, 160, 160)',
        {},
    ),
    (
        'yolov5_face',
        1,
        '25200 cells of strides 8, 16 and 32, 5 keypoints as in published networks',
        'output (1, 25200, 16)',
        {},
    ),
    (
        'yolov7_pose',
        1,
        '1 named class, named output, 25500 cells of strides 8, 16, 32 and 64',
        'output (1, 25500, 57)',
        {'class_count': 1},
    ),
    (
        'yolov7_pose',
        1,
        '25200 cells of strides 8, 16 and 32, 5 keypoints as in published networks',
        'output (1, 25200, 21)',
        {},
    ),
    ('scrfd', 1, 'cells of strides 8, 16 and 32', levels(SCRFD, 2, ''), {}),
    (
        'scrfd',
        1,
        '1 named class, cells of strides 8, 16 and 32',
        levels(SCRFD, 2),
        {'class_count': 1},
    ),
    (
        'yunet',
        1,
        'named cls_8, obj_8, bbox_8, kps_8, cells of strides 8, 16 and 32',
        levels({'cls': 1, 'obj': 1, 'bbox': 4, 'kps': 10}),
        {},
    ),
    (
        'retinaface',
        1,
        '16800 cells of strides 8, 16 and 32',
        'output0 (1, 16800, 4); 588 (1, 16800, 2); 587 (1, 16800, 10)',
        {},
    ),
    (
        'yolov8_seg',
        80,
        '80 named classes, named output0, 8400 cells of strides 8, 16 and 32',
        SEG,
        {'task': 'segment', 'class_count': 80},
    ),
    (
        'yolov8_seg',
        80,
        'named output0, 8400 cells of strides 8, 16 and 32, 80 classes of COCO',
        SEG,
        {},
    ),
    (
        'yolov8_seg',
        80,
        '8400 cells of strides 8, 16 and 32, 80 classes of COCO',
        'protos (1, 32, 160, 160); boxes (1, 116, 8400)',
        {},
    ),
    (
        'yolov8_seg',
        80,
        'metadata of Ultralytics, named output0, 80 classes of COCO',
        'output0 (?, 116, ?); output1 (?, 32, ?, ?)',
        {'task': 'segment'},
    ),
    (
        'yolov8_seg',
        None,
        'metadata of Ultralytics, NMS in the metadata, named output0',
        SEG_26,
        {'task': 'segment', 'class_count': 80, 'end2end': 'True'},
    ),
    ('yolov8_seg', None, 'named output0', SEG_26, {}),
    (
        'yolo_semantic',
        None,
        'task semantic in the metadata',
        'output0 (1, 640, 640) uint8',
        {'task': 'semantic', 'class_count': 19},
    ),
    ('semantic', None, 'integers', 'out (1, 640, 640) int64', {}),
    ('semantic', None, 'integers', 'out (1, ?, ?) int64', {}),
    (
        'semantic',
        None,
        'named argmax_1, integers',
        'argmax_1 (1, 544, 960, 1) int32',
        {'hw': (544, 960)},
    ),
    ('semantic', 21, '21 classes of published data', 'out (1, 21, 640, 640)', {}),
    (
        'semantic',
        150,
        'named logits, 150 classes of published data',
        'logits (1, 150, 128, 128)',
        {'hw': (512, 512)},
    ),  # SegFormer
    ('semantic', 2, 'named sigmoid', 'sigmoid (1, 1, 544, 960)', {'hw': (544, 960)}),
    (
        'semantic',
        2,
        'named softmax_1',
        'softmax_1 (1, 544, 960, 2)',
        {'hw': (544, 960)},
    ),  # PeopleSemSegNet
    (
        'rfdetr_seg',
        91,
        'named labels, dets, masks',
        'dets (1, 100, 4); labels (1, 100, 91); masks (1, 100, 78, 78)',
        {'hw': (312, 312)},
    ),
    (
        'rfdetr_seg',
        3,
        '3 named classes, named labels, dets, masks',
        'dets (?, ?, 4); labels (?, ?, 4); masks (?, ?, ?, ?)',
        {'class_count': 3},
    ),
    (
        'maskformer',
        150,
        'named class_queries_logits, masks_queries_logits',
        'class_queries_logits (1, 100, 151); masks_queries_logits (1, 100, 160, 160)',
        {},
    ),
    (
        'maskformer',
        150,
        'named class_queries_logits, masks_queries_logits',
        'class_queries_logits (1, 100, 151); masks_queries_logits (1, 100, 160, 160)',
        {'class_count': 2},
    ),
    (
        'maskformer',
        19,
        'named class_queries_logits, masks_queries_logits',
        'masks_queries_logits (?, ?, ?, ?); class_queries_logits (?, ?, 20)',
        {'class_count': 19},
    ),
    (
        'maskformer_panoptic',
        250,
        'named logits, pred_boxes, pred_masks',
        'logits (1, 100, 251); pred_boxes (1, 100, 4); pred_masks (1, 100, 160, 160)',
        {},
    ),
    ('ufld', 4, 'no evidence but the shape', 'out (1, 101, 56, 4)', {'hw': (288, 800)}),
    (
        'ufld',
        4,
        'no evidence but the shape',
        'out (?, 201, 18, 4)',
        {'hw': (288, 800), 'class_count': 4},
    ),
    (
        'ufld_v2_culane',
        4,
        'no evidence but the shape',
        'loc_row (1, 200, 72, 4); loc_col (1, 100, 81, 4); exist_row (1, 2, 72, 4); '
        'exist_col (1, 2, 81, 4)',
        {'hw': (320, 1600)},
    ),
    (
        'ufld_v2_tusimple',
        4,
        'no evidence but the shape',
        'd (?, 2, 41, 4); c (?, 2, 56, 4); b (?, 100, 41, 4); a (?, 100, 56, 4)',
        {'hw': (320, 800)},
    ),
    (
        'lstr',
        1,
        'named pred_logits, pred_curves',
        'pred_logits (1, 7, 2); pred_curves (1, 7, 8); foo_out_1 (1, 7, 2); foo_out_2 (1, 7, 8); '
        'weights (1, 240, 240)',
        {'hw': (360, 640)},
    ),
    (
        'lstr',
        1,
        'named logits, curves',
        'curves (?, 7, 8); logits (?, 7, 3)',
        {'hw': (360, 640)},
    ),
    (
        'yolov8_pose',
        1,
        '1 named class, named output0, 8400 cells of strides 8, 16 and 32',
        'output0 (1, 56, 8400)',
        {**POSE, 'class_count': 1},
    ),
    (
        'yolov8_pose',
        1,
        '8400 cells of strides 8, 16 and 32, 17 keypoints as in published networks',
        'output0 (1, 56, 8400)',
        {},
    ),
    (
        'yolov8_pose',
        2,
        '2 named classes, named output0, 8400 cells of strides 8, 16 and 32',
        'output0 (1, 15, 8400)',
        {'class_count': 2},
    ),
    (
        'yolov8_pose',
        1,
        'metadata of Ultralytics, named output0, 8400 cells of strides 8, 16 and 32',
        'output0 (1, 13, 8400)',
        {'task': 'pose', 'kpt_shape': '[4, 2]'},
    ),
    (
        'yolov8_pose',
        None,
        'NMS in the metadata, named output0, 17 keypoints as in published networks',
        'output0 (1, 300, 57)',
        {**POSE, 'end2end': 'True'},
    ),
    (
        'yolov8_pose',
        None,
        'named output0, 17 keypoints as in published networks',
        'output0 (1, 300, 57)',
        {},
    ),
    (
        'heatmap_pose',
        None,
        'named heatmaps',
        'heatmaps (1, 21, 64, 64)',
        {'hw': (256, 256)},
    ),
    (
        'heatmap_pose',
        None,
        'named heatmaps',
        'heatmaps (?, 17, ?, ?)',
        {'hw': (256, 192)},
    ),  # As torch exports it with a dynamic batch.
    (
        'heatmap_pose',
        None,
        '17 keypoints as in published networks',
        'output (?, 17, 64, 48)',
        {'hw': (256, 192)},
    ),  # ViTPose, HRNet
    (
        'mediapipe_palm',
        1,
        '2016 cells of strides 8 and 16',
        'Identity (1, 2016, 18); Identity_1 (1, 2016, 1)',
        {'hw': (192, 192)},
    ),
    (
        'mediapipe_hand',
        2,
        'no evidence but the shape',
        'Identity (1, 63); Identity_1 (1, 1); Identity_2 (1, 1); Identity_3 (1, 63)',
        {'hw': (224, 224)},
    ),
    (
        'movenet',
        None,
        'no evidence but the shape',
        'output_0 (1, 1, 17, 3)',
        {'hw': (192, 192)},
    ),
    (
        'movenet',
        1,
        'no evidence but the shape',
        'output_0 (1, 6, 56)',
        {'hw': (256, 256)},
    ),
    (
        'simcc',
        None,
        'no evidence but the shape',
        'simcc_x (?, 17, 384); simcc_y (?, 17, 512)',
        {'hw': (256, 192)},
    ),  # RTMPose
    (
        'simcc',
        None,
        'no evidence but the shape',
        'b (1, 133, 768); a (1, 133, 576)',
        {'hw': (384, 288)},
    ),
    (
        'yolov8_obb',
        15,
        '15 named classes, named output0, 8400 cells of strides 8, 16 and 32',
        'output0 (1, 20, 8400)',
        {'task': 'obb', 'class_count': 15},
    ),
    (
        'yolov8_obb',
        15,
        'named output0, 8400 cells of strides 8, 16 and 32',
        'output0 (1, 20, 8400)',
        {},
    ),
    (
        'yolov8_obb',
        None,
        'metadata of Ultralytics, NMS in the metadata, named output0',
        'output0 (1, 300, 7)',
        {'task': 'obb', 'end2end': 'True'},
    ),
    (
        'yolov8_cls',
        1000,
        'task classify in the metadata, 1000 named classes, named output0',
        'output0 (1, 1000)',
        {'task': 'classify', 'class_count': 1000},
    ),
    ('classifier', 1000, 'named logits, 1000 classes of published data', 'logits (1, 1000)', {}),
    ('classifier', 9, '9 named classes, named logits', 'logits (?, 9, 1, 1)', {'class_count': 9}),
    ('classifier', None, 'named logits', 'logits (?, ?)', {}),
    (
        'yolo_depth',
        None,
        'metadata of Ultralytics, task depth in the metadata, named output0',
        'output0 (1, 1, 640, 640)',
        {'task': 'depth'},
    ),
    ('depth', None, 'named predicted_depth', 'predicted_depth (1, 518, 518)', {'hw': (518, 518)}),
    ('depth', None, 'no evidence but the shape', 'out (1, 1, 266, 476)', {'hw': (266, 476)}),
    (
        'depth',
        None,
        'named depth',
        'depth (1, 1, 280, 504); sky (1, 1, 280, 504)',
        {'hw': (280, 504)},
    ),
    (
        'embedding',
        None,
        'named image_embeds',
        'image_embeds (1, 512)',
        {},
    ),
    (
        'embedding',
        None,
        'named pooler_output',
        'last_hidden_state (1, 257, 768); pooler_output (1, 768)',
        {},
    ),
    ('tensor', None, 'are published undecoded', 'a (1, 3, 5); b (7) int64', {}),
    ('tensor', None, 'are published undecoded', 'output0 (1, 56, 8400)', POSE),
]
