"""Networks that one family recognizes, with the evidence in the log."""

import json
from pathlib import Path
import re

from trt_ros.tensors import CUT_NMS


def bins(strides, classes, size):
    """Write class scores and eight bins per side of each stride, as PicoDet does."""
    return '; '.join(
        f'{kind}_{stride} (1, {(-(-size // stride)) ** 2}, {channels})'
        for kind, channels in (('cls_pred', classes), ('dis_pred', 32))
        for stride in strides
    )


COCO = {'task': 'detect', 'class_count': 80}
TWO = {'task': 'detect', 'class_count': 2}
SEG = 'output0 (1, 116, 8400); output1 (1, 32, 160, 160)'
CUT = 'nms_boxes (1, ?, 4); nms_scores (1, ?, 3)'
DEPLOYED = 'labels (?, 300) int64; boxes (?, 300, 4); scores (?, 300)'


def cut(operator='NonMaxSuppression', inputs=''):
    return {CUT_NMS: json.dumps({'operator': operator}), 'inputs': inputs}


def _read():
    """Yield family, number of classes, end of the evidence, outputs and what else is known."""
    text = Path(__file__).with_suffix('.txt').read_text()
    for match in re.finditer(r'^(\w+) (\d+|\?): (.*)((?:\n    .*)+)', text, re.MULTILINE):
        family, classes, evidence, rest = match.groups()
        outputs, _, known = ' '.join(rest.split()).partition(' {')
        known = json.loads(f'{{{known}') if known else {}
        known = {
            key: tuple(each) if isinstance(each, list) else each for key, each in known.items()
        }
        yield family, None if classes == '?' else int(classes), evidence, outputs, known


TOLD = list(_read())
