"""Classifiers are shown what torchvision and Ultralytics show them."""

import cv2
import numpy as np
import pytest

from trt_ros.families.vectors import CLASSIFIER, YOLOV8_CLS
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess

SIZES = [(500, 375), (375, 500), (641, 479), (120, 91), (1023, 767)]


def picture(width, height):
    """Smooth colors in which each place differs from those beside it."""
    coarse = np.random.default_rng(width).integers(0, 256, (9, 12, 3), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def assert_alike(family, transform, image_wh):
    """Pillow averages what it shrinks, and rounds."""
    images = pytest.importorskip('PIL.Image', reason='torchvision transforms its images')
    pixels = picture(*image_wh)
    preprocess = Preprocess((224, 224), **family.preprocess, antialias=True)
    ours, _ = preprocess(Frame.from_pixels(pixels, 'rgb8'))
    theirs = transform(images.fromarray(pixels)).numpy()
    steps = np.abs(ours[0] - theirs) * 255 * np.reshape(preprocess.std, (3, 1, 1))
    assert steps.mean() < 0.6 and steps.max() < 6


@pytest.mark.parametrize('image_wh', SIZES)
def test_classifier_preprocessing_equals_torchvision(image_wh, torch):
    presets = pytest.importorskip('torchvision.transforms._presets', reason='it is compared with')
    assert_alike(CLASSIFIER, presets.ImageClassification(crop_size=224), image_wh)


@pytest.mark.parametrize('image_wh', SIZES)
def test_yolo_classifier_preprocessing_equals_ultralytics(image_wh, ultralytics):
    from ultralytics.data.augment import classify_transforms

    assert_alike(YOLOV8_CLS, classify_transforms(224), image_wh)
