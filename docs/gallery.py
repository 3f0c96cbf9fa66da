"""Draw the pictures of the gallery: python docs/gallery.py."""

from pathlib import Path
import sys
from tempfile import TemporaryDirectory

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / 'test'))
sys.path.insert(0, str(Path(__file__).parents[1] / 'tools'))
from demo.scene import MovingScene, held_out

from support.descriptions import head as open_as
from support.rgbd_scenes import Scene, Solid, render, yaw
from support.shape_networks import save_shapes
from trt_ros import Pipeline
from trt_ros.cli import main as run_cli
from trt_ros.demo import MODEL
from trt_ros.drawing import draw
from trt_ros.drawing.boxes_3d import draw_boxes_3d
from trt_ros.drawing.objects import Trails, object_labels
from trt_ros.media import read_picture, write_picture
from trt_ros.results.arrays import Depth
from trt_ros.results.base import Result
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.results.classes import Classification
from trt_ros.results.masks import Instances
from trt_ros.results.poses import COCO, LIMBS, Poses
from trt_ros.tracking.tracker import Tracker
from trt_ros.vision.boxes_3d import DepthScene, box_corners
from trt_ros.vision.depth_points import Intrinsics
from trt_ros.vision.letterbox import Letterbox

CHECKOUT = Path(__file__).parents[1]
FOLDER = CHECKOUT / 'docs/images/gallery'
CAMERA = Intrinsics(560.0, 560.0, 319.5, 219.5, (640, 480))
FLOOR, WALL, CRATE, PERSON = range(4)
NAMES = ('floor', 'wall', 'crate', 'person')
IMAGENET = {'mean': (0.485, 0.456, 0.406), 'std': (0.229, 0.224, 0.225)}
WALL_COLOR = (205, 200, 190)

# Joints of a person who waves: x, y, z in meters from the point below the neck.
HALF_BODY = {
    'eye': (0.035, -0.48, -0.09),
    'ear': (0.075, -0.46, 0.0),
    'shoulder': (0.19, -0.25, 0.0),
    'elbow': (0.3, 0.02, 0.0),
    'wrist': (0.33, 0.28, -0.05),
    'hip': (0.11, 0.3, 0.0),
    'knee': (0.14, 0.75, -0.03),
    'ankle': (0.16, 1.12, 0.0),
}
WAVING = {'right_elbow': (-0.4, -0.3, -0.05), 'right_wrist': (-0.45, -0.62, -0.1)}
STANDS_AT = np.array([-0.85, 0.0, 3.3])


def joints() -> np.ndarray:
    """Return the joints of the person in the order of COCO: (17, 3) meters."""
    found = {'nose': (0.0, -0.45, -0.1)}
    for part, (x, y, z) in HALF_BODY.items():
        found[f'left_{part}'], found[f'right_{part}'] = (x, y, z), (-x, y, z)
    found.update(WAVING)
    return np.array([found[name] for name in COCO]) + STANDS_AT


def at_person(y: float) -> tuple[float, float, float]:
    """Return a point on the middle line of the person."""
    return float(STANDS_AT[0]), y, float(STANDS_AT[2])


def limb(first: np.ndarray, second: np.ndarray, width: float) -> Solid:
    """Return a box from joint to joint."""
    length = float(np.linalg.norm(second - first))
    along = (second - first) / length
    across = np.cross(along, (0.0, 0.0, 1.0))
    across /= np.linalg.norm(across)
    rotation = np.stack([across, along, np.cross(across, along)], axis=1)
    size = (width, length + width / 2, width)
    return Solid(tuple(((first + second) / 2).tolist()), size, rotation)


def solids() -> tuple[list[Solid], list[int], np.ndarray]:
    """Return the solids of the room, the class and the color of each, BGR."""
    place = joints()
    room = [
        (Solid((0.0, 1.3, 5.0), (14.0, 0.1, 14.0), yaw(0)), FLOOR, (120, 130, 140)),
        (Solid((0.9, 0.85, 3.4), (0.8, 0.8, 0.8), yaw(30)), CRATE, (60, 130, 200)),
        (Solid((0.95, 0.2, 3.5), (0.5, 0.5, 0.5), yaw(-15)), CRATE, (90, 150, 190)),
        (Solid((0.05, 0.95, 4.6), (0.6, 0.6, 0.6), yaw(55)), CRATE, (70, 110, 160)),
    ]
    body = [
        (Solid(at_person(0.02), (0.4, 0.62, 0.2), yaw(8)), (170, 90, 40)),
        (Solid(at_person(-0.46), (0.16, 0.24, 0.19), yaw(8)), (150, 180, 225)),
        (Solid(at_person(-0.31), (0.09, 0.14, 0.09), yaw(0)), (150, 180, 225)),
    ]
    for first, second in LIMBS:
        is_arm, is_leg = {first, second} & {7, 8}, {first, second} & {13, 14}
        if is_arm or is_leg:
            color = (150, 180, 225) if is_arm else (90, 60, 50)
            body.append((limb(place[first], place[second], 0.09 if is_arm else 0.13), color))
    room += [(solid, PERSON, color) for solid, color in body]
    return (
        [each for each, _, _ in room],
        [kind for _, kind, _ in room],
        np.array([color for _, _, color in room], float),
    )


def photograph(scene: Scene, colors: np.ndarray) -> np.ndarray:
    """Shade a scene by the angle of its surfaces: (H, W, 3) uint8 BGR."""
    points = scene.rays() * scene.meters[..., None]
    normals = np.cross(np.gradient(points, axis=0), np.gradient(points, axis=1))
    normals /= np.linalg.norm(normals, axis=2, keepdims=True) + 1e-9
    light = np.array([0.35, 0.75, 0.55]) / np.linalg.norm([0.35, 0.75, 0.55])
    shade = 0.6 + 0.4 * np.abs(normals @ light)
    owner = scene.owners
    pixels = np.vstack([WALL_COLOR, colors])[owner]
    tiles = (np.floor(points[..., 0] / 0.6) + np.floor(points[..., 2] / 0.6)) % 2
    shade *= np.where(owner == 1, 0.85 + 0.15 * tiles, 1.0)
    return np.clip(pixels * shade[..., None], 0, 255).astype(np.uint8)


def from_shapes() -> None:
    """Draw detections and tracks of the demo network."""
    scene = MovingScene(9)
    tracker, trails = Tracker(), Trails()
    with Pipeline.open(str(MODEL), backend='onnxruntime') as pipeline:
        for index in range(0, 90, 3):
            pixels = scene.frame(index)[0]
            found, stamp_ns = pipeline(pixels), index * 50_000_000
            shown = tracker(found, stamp_ns)
            trails.add(shown, stamp_ns, 3.0)
    detected, tracked = pixels.copy(), pixels
    draw(detected, found)
    trails.draw(tracked)
    draw(tracked, shown)
    save('detections', detected)
    save('tracks', tracked)


def from_room() -> None:
    """Draw the results of the other tasks on the rendered room."""
    everything, kinds, colors = solids()
    scene = render(everything, CAMERA, wall=6.0)
    fine = Intrinsics(1120.0, 1120.0, 639.5, 439.5, (1280, 960))
    photo = cv2.resize(
        photograph(render(everything, fine, wall=6.0), colors),
        CAMERA.image_wh,
        interpolation=cv2.INTER_AREA,
    )
    classes = np.array([WALL, *kinds])[scene.owners]
    objects = [scene.owners == number for number in (2, 3, 4)] + [classes == PERSON]
    found = detections_of(objects)
    whole = np.zeros((4, 2), np.int32)
    save_result('instances', photo, Instances(found, objects, whole, CAMERA.image_wh))
    places = joints()
    uv = places[:, :2] / places[:, 2:] * (CAMERA.fx, CAMERA.fy) + (CAMERA.cx, CAMERA.cy)
    keypoints = np.concatenate([uv, np.ones((17, 1))], axis=1)[None].astype(np.float32)
    save_result('keypoints', photo, Poses(found.take(np.array([3])), keypoints))
    shares = np.bincount(classes.reshape(-1), minlength=4) / classes.size
    save_result('classification', photo, Classification(shares.astype(np.float32)))
    save_result('depth', photo, Depth(scene.meters.astype(np.float32)))
    save_masks(photo, classes)
    save_boxes_3d(
        photo, scene, found, sum(number * mask for number, mask in enumerate(objects, 1))
    )


def detections_of(objects: list[np.ndarray]) -> Detections:
    """Return the boxes of masks."""
    boxes = []
    for mask in objects:
        rows, cols = np.nonzero(mask)
        boxes.append((cols.min(), rows.min(), cols.max() + 1, rows.max() + 1))
    scores, labels = np.linspace(0.95, 0.8, len(boxes)), [CRATE] * 3 + [PERSON]
    return Detections(np.float32(boxes), scores.astype(np.float32), np.int32(labels))


def save_masks(photo: np.ndarray, classes: np.ndarray) -> None:
    """Save mask and confidence, decoded from scores of an eighth of the image size."""
    exact = (classes == np.arange(4)[:, None, None]).astype(np.float32)
    scores = np.stack([cv2.resize(each, (80, 60), interpolation=cv2.INTER_AREA) for each in exact])
    head = open_as('semantic', {'scores': scores[None]}, hw=(480, 640)).with_confidence()
    letterbox = Letterbox.fit(CAMERA.image_wh, (480, 640), 'stretch')
    mask = head({'scores': scores[None]}, letterbox)
    save_result('mask', photo, mask)
    save('confidence', cv2.cvtColor(mask.confidence, cv2.COLOR_GRAY2BGR))


def save_boxes_3d(
    photo: np.ndarray, scene: Scene, found: Detections, instances: np.ndarray
) -> None:
    """Save the boxes in space that are measured by masks in a depth image with 1 % noise."""
    depths = DepthScene(scene.depth('16UC1', noise=0.01), CAMERA, instances=instances)
    low, high = found.xyxy[:, :2], found.xyxy[:, 2:]
    boxes = np.hstack([(low + high) / 2, high - low, np.zeros((len(found), 1))])
    measured = depths.measure(boxes, np.arange(len(found)))
    upright = np.tile([0.0, 0.0, 0.0, 1.0], (len(found), 1))
    corners = box_corners(measured.centers.astype(float), measured.sizes.astype(float), upright)
    pixels = photo.copy()
    draw_boxes_3d(pixels, corners, object_labels(found.labels, found.scores, NAMES), CAMERA)
    save('boxes_3d', pixels)


def oriented() -> None:
    """Save rotated boxes of containers seen from above."""
    rng = np.random.default_rng(4)
    pixels = np.full((480, 640, 3), 150, np.uint8)
    pixels += rng.integers(0, 14, pixels.shape, np.uint8)
    centers = [(110, 110), (300, 90), (520, 120), (140, 340), (330, 300), (530, 350)]
    boxes = np.float32([(x, y, rng.uniform(110, 150), 48) for x, y in centers])
    theta = rng.uniform(-np.pi / 2, np.pi / 2, len(boxes)).astype(np.float32)
    for (x, y, width, height), angle in zip(boxes.tolist(), theta.tolist()):
        corners = cv2.boxPoints(((x, y), (width, height), np.degrees(angle)))
        cv2.fillPoly(pixels, [np.rint(corners).astype(np.int32)], rng.uniform(40, 200, 3).tolist())
    scores = np.linspace(0.95, 0.8, len(boxes)).astype(np.float32)
    found = OrientedBoxes(boxes, theta, scores, np.zeros(len(boxes), np.int32))
    found.class_names = ('container',)
    draw(pixels, found)
    save('oriented', pixels)


def save_result(name: str, photo: np.ndarray, result: Result) -> None:
    """Draw a result on a copy of the picture and save it."""
    pixels, result.class_names = photo.copy(), NAMES
    draw(pixels, result)
    save(name, pixels)


def save(name: str, pixels: np.ndarray) -> None:
    """Write a picture of the gallery."""
    write_picture(FOLDER / f'{name}.jpg', pixels, jpeg_quality=85)


def readings() -> None:
    """Save the page of `trt-ros fit`, of the demo's network that takes the pixels of ImageNet."""
    with TemporaryDirectory() as folder:
        path = Path(folder)
        model = save_shapes(path / 'shapes.onnx', **IMAGENET)
        for index, (pixels, *_) in enumerate(held_out(6)):
            write_picture(path / f'scene_{index}.png', pixels)
        given = ['--resize', 'letterbox', '--channel-order', 'rgb', '--output', folder]
        run_cli(['fit', str(model), *map(str, sorted(path.glob('scene_*'))), *given])
        pixels = read_picture(path / 'fit.png')
    pixels = cv2.resize(pixels, None, fx=0.9, fy=0.9, interpolation=cv2.INTER_AREA)
    write_picture(FOLDER.parent / 'fit.jpg', pixels, jpeg_quality=85)


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    from_shapes()
    from_room()
    oriented()
    readings()
    source, picture = CHECKOUT / 'docs/images/demo.png', FOLDER / 'verify.jpg'
    run_cli(['verify', str(MODEL), str(source), '--picture', str(picture)])
    save('verify', read_picture(picture))  # Smaller.


if __name__ == '__main__':
    main()
