"""A detector node as in tutorials: rclpy, OpenCV and ONNX Runtime with their defaults."""

import contextlib
import sys

import cv2
import numpy as np
import onnxruntime
import rclpy
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2D, Detection2DArray, ObjectHypothesisWithPose


class NaiveDetector(Node):
    def __init__(self, model):
        super().__init__('naive')
        self.session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
        self.input = self.session.get_inputs()[0]
        self.publisher = self.create_publisher(Detection2DArray, '~/detections', 10)
        self.create_subscription(Image, 'image', self.on_image, qos_profile_sensor_data)

    def on_image(self, message):
        image = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
        rows, cols = self.input.shape[2:]
        is_face = len(self.session.get_outputs()) == 2
        scale = np.array([cols / message.width, rows / message.height])
        if not is_face:
            scale[:] = scale.min()
        size = (scale * [message.width, message.height]).round().astype(int)
        top, left = (rows - size[1]) // 2, (cols - size[0]) // 2
        canvas = np.full((rows, cols, 3), 114, np.uint8)
        canvas[top : top + size[1], left : left + size[0]] = cv2.resize(image, size)
        pixels = cv2.cvtColor(canvas, cv2.COLOR_BGR2RGB).astype(np.float32)
        pixels = (pixels - 127) / 128 if is_face else pixels / 255
        outputs = self.session.run(
            None, {self.input.name: np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])}
        )
        if is_face:
            scores, boxes = outputs[0][0, :, 1:], outputs[1][0] * [cols, rows, cols, rows]
            boxes[:, 2:] -= boxes[:, :2]
        else:
            scores, boxes = outputs[0][0, 4:].T, outputs[0][0, :4].T.copy()
            boxes[:, :2] -= boxes[:, 2:] / 2
        boxes = (boxes - [left, top, 0, 0]) / np.tile(scale, 2)
        labels, best = scores.argmax(1), scores.max(1)
        keep = cv2.dnn.NMSBoxesBatched(boxes, best, labels, float(sys.argv[2]), 0.45)
        result = Detection2DArray(header=message.header)
        for x, y, w, h, score, label in np.c_[boxes, best, labels][keep].tolist():
            detection = Detection2D(header=message.header)
            detection.bbox.center.position.x = x + w / 2
            detection.bbox.center.position.y = y + h / 2
            detection.bbox.size_x, detection.bbox.size_y = w, h
            hypothesis = ObjectHypothesisWithPose()
            hypothesis.hypothesis.class_id = str(int(label))
            hypothesis.hypothesis.score = score
            detection.results.append(hypothesis)
            result.detections.append(detection)
        self.publisher.publish(result)


if __name__ == '__main__':
    rclpy.init()
    with contextlib.suppress(KeyboardInterrupt, rclpy.executors.ExternalShutdownException):
        rclpy.spin(NaiveDetector(sys.argv[1]))
