"""Values and structs of the arguments of the box kernels, see boxes.cu."""

import ctypes
from ctypes import c_float, c_int, c_void_p

from trt_ros.decode.cuda.decoder import fields

MAX_LEVELS, MAX_PRIORS = 4, 6  # boxes.cu: struct Head, struct Level

# In the order of the enums of boxes.cu.
FORMS = {'corners': 0, 'centers': 1, 'rotated': 2, 'offsets': 3, 'sides': 4}
UNITS = {'stride': 0, 'prior': 1, 'pixel': 2}
SIZES = {'exp': 0, 'linear': 1, 'squared': 2, 'tanh': 3}
ACTIVATIONS = {'none': 0, 'sigmoid': 1, 'softmax': 2, 'maybe_sigmoid': 3}
INTEGERS = {'int32': 1, 'int64': 2}
SCORES = 3
ANGLE, KEYPOINTS_2, KEYPOINTS_3, COEFFICIENTS = 1, 2, 3, 4


class LevelArgs(ctypes.Structure):
    """Outputs and grid of one stride; boxes.cu: struct Level."""

    _fields_ = [
        *fields(c_void_p, 'boxes sizes scores objectness extras'),
        *fields(c_int, 'first across cells per_cell'),
        ('strides', c_float * 2),
        ('priors', c_float * 2 * MAX_PRIORS),
    ]


class HeadArgs(ctypes.Structure):
    """Arguments of the box kernels; boxes.cu: struct Head."""

    _fields_ = [
        ('levels', LevelArgs * MAX_LEVELS),
        *fields(
            c_void_p,
            'labels count request result counters keys top sorted boxes_sorted shapes_sorted kept '
            'instances mask histogram',
        ),
        *fields(
            c_int,
            'pitch shift capacity places rows classes level_count row_classes box_row box_column '
            'extra_row extra_column score_row score_column objectness_row label_row label_kind '
            'label_offset count_kind extra_count extra_kind form activation uses_nms',
        ),
        *fields(c_float, 'box_width box_height'),
        *fields(
            c_int,
            'bins planes box_plane is_y_first unit size_code limits_objectness has_points is_peak',
        ),
        *fields(c_float, 'place pixel gain size_gain power class_power'),
        ('limits', c_float * 2),
        *fields(c_float, 'scale_x scale_y scale_area pad_x pad_y'),
        *fields(c_int, 'has_one_scale image_width image_height'),
    ]
