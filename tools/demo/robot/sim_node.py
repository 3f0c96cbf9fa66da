"""Node that simulates the robot: joint targets in, sensors, images and the clock out."""

from array import array
from collections.abc import Callable
import time
from typing import Any

from geometry_msgs.msg import Point, Quaternion, Transform, TransformStamped, Vector3
from nav_msgs.msg import Odometry
import numpy as np
from rclpy.node import Node
from rclpy.time import Time
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, Imu, JointState
from std_msgs.msg import Float64MultiArray, Header

from demo.robot.pictures import View, eye_of
from demo.robot.simulation import Sensed, Simulation
from demo.robot.world import CONTROL_SECONDS, JOINTS, STANDING, draw_layout
from trt_ros.errors import ParameterError
from trt_ros.ros.message_types import message_class
from trt_ros.ros.qos import LATCHED, RESULTS

CAMERA_FRAME = 'camera_optical_frame'
CAMERA_TICKS = 10  # Control steps per image: 5 Hz.
COMMAND_TIMEOUT_SECONDS = 2.0  # Of the wall clock.


class SimNode(Node):
    """
    A node that owns the simulated time.

    Each control step publishes the clock and the sensors, and waits for the joint targets of that
    step: a slow machine slows the simulation down, and the robot walks the same. A fast one
    simulates in real time. The targets are arrays or trajectories, whose last point stays.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('sim', **kwargs)
        seed = self.declare_parameter('seed', 1).value
        target = self.declare_parameter('target', 'ball').value
        self.layout = draw_layout(seed, target)
        self.simulation = Simulation(self.layout)
        self.late_commands = 0
        self.command_seconds: list[float] = []  # From the sensors to the joint targets.
        self.image_times: dict[int, float] = {}  # Monotonic, by stamp in nanoseconds.
        self._camera = eye_of(self.simulation.model)
        self.view = self.look()  # The newest.
        self._is_new, self._began = False, 0.0
        self._ticks = 0
        self._clock_out = self.create_publisher(Clock, '/clock', 10)
        self._joints_out = self.create_publisher(JointState, 'joint_states', RESULTS)
        self._imu_out = self.create_publisher(Imu, 'imu', RESULTS)
        self._odom_out = self.create_publisher(Odometry, 'odom', RESULTS)
        self._image_out = self.create_publisher(Image, 'image', RESULTS)
        self._depth_out = self.create_publisher(Image, 'depth_image', RESULTS)
        self._info_out = self.create_publisher(CameraInfo, 'camera_info', RESULTS)
        self.create_subscription(Float64MultiArray, 'policy/commands', self._on_targets, RESULTS)
        self._trajectory: tuple[np.ndarray, np.ndarray] | None = None  # Times and targets.
        self._tf_out: Any = None
        try:
            kind = message_class('trajectory_msgs/msg/JointTrajectory')
            topic = 'policy/joint_trajectory'
            self.create_subscription(kind, topic, self._on_trajectory, RESULTS)
            tf = message_class('tf2_msgs/msg/TFMessage')
            self._tf_out = self.create_publisher(tf, '/tf', 10)
            static = self._static_out = self.create_publisher(tf, '/tf_static', LATCHED)
            static.publish(tf(transforms=[self._camera_transform()]))
        except ParameterError as error:
            self.get_logger().info(f'{error.problem} Its topics are left out.')

    def _on_targets(self, message: Float64MultiArray) -> None:
        self._take(np.zeros(1), np.array([message.data]))

    def _on_trajectory(self, message: Any) -> None:
        names = message.joint_names
        if set(JOINTS) <= set(names) and message.points:
            order = [names.index(name) for name in JOINTS]
            begin = _seconds(message.header.stamp)
            times = [begin + _seconds(point.time_from_start) for point in message.points]
            targets = [np.array(point.positions)[order] for point in message.points]
            self._take(np.array(times), np.array(targets))

    def _take(self, times: np.ndarray, targets: np.ndarray) -> None:
        if targets.shape[1:] == STANDING.shape and np.isfinite(targets).all():
            self.command_seconds.append(time.monotonic() - self._began)
            self._trajectory, self._is_new = (times, targets), True

    def _targets(self, seconds: float) -> np.ndarray:
        """Return the joint targets for the end of a step."""
        if self._trajectory is None:
            return STANDING
        times, targets = self._trajectory
        return np.array([np.interp(seconds, times, each) for each in targets.T])

    def _duration(self) -> float:
        """Return the real time of this step: that of the simulation, or to wait for targets."""
        is_late = self.has_started and not self._is_new
        return COMMAND_TIMEOUT_SECONDS if is_late else CONTROL_SECONDS

    @property
    def has_started(self) -> bool:
        """Whether joint targets have come."""
        return self._trajectory is not None

    def tick(self, spin_once: Callable[[float], None]) -> Sensed:
        """
        Publish one control step and simulate it.

        :param spin_once: handles at most one message, waiting so many seconds for it.
        """
        sensed = self.simulation.sense()
        stamp = Time(nanoseconds=round(sensed.seconds * 1e9)).to_msg()
        if self._ticks % CAMERA_TICKS == 0:
            self._publish_view(stamp)
        self._ticks += 1
        self._is_new, self._began = False, time.monotonic()
        self._clock_out.publish(Clock(clock=stamp))
        self._publish_sensors(stamp, sensed)
        while (left := self._began + self._duration() - time.monotonic()) > 0:
            spin_once(left)
        self.late_commands += self.has_started and not self._is_new
        self.simulation.step(self._targets(sensed.seconds + CONTROL_SECONDS))
        return sensed

    def _publish_sensors(self, stamp: Any, sensed: Sensed) -> None:
        header = Header(stamp=stamp, frame_id='base_link')
        self._joints_out.publish(
            JointState(
                header=header,
                name=list(JOINTS),
                position=sensed.joint_positions.tolist(),
                velocity=sensed.joint_velocities.tolist(),
                effort=sensed.joint_torques.tolist(),
            )
        )
        w, x, y, z = sensed.quaternion.tolist()
        rotation = Quaternion(w=w, x=x, y=y, z=z)
        spin = _vector(sensed.angular_velocity)
        self._imu_out.publish(
            Imu(
                header=header,
                orientation=rotation,
                angular_velocity=spin,
                linear_acceleration=_vector(sensed.acceleration),
            )
        )
        odometry = Odometry(
            header=Header(stamp=stamp, frame_id='odom'), child_frame_id='base_link'
        )
        x, y, z = sensed.position.tolist()
        odometry.pose.pose.position = Point(x=x, y=y, z=z)
        odometry.pose.pose.orientation = rotation
        odometry.twist.twist.linear = _vector(sensed.velocity)
        odometry.twist.twist.angular = spin
        self._odom_out.publish(odometry)
        if self._tf_out is not None:
            moved = TransformStamped(
                header=odometry.header,
                child_frame_id='base_link',
                transform=Transform(translation=Vector3(x=x, y=y, z=z), rotation=rotation),
            )
            self._tf_out.publish(self._tf_out.msg_type(transforms=[moved]))

    def _camera_transform(self) -> TransformStamped:
        """Return where the camera is on the body; its frame is optical: z forward, y down."""
        eye = self.simulation.model.camera('eye')
        w, x, y, z = eye.quat.tolist()  # Of a frame whose z axis points backward, y up.
        return TransformStamped(
            header=Header(frame_id='base_link'),
            child_frame_id=CAMERA_FRAME,
            transform=Transform(
                translation=_vector(eye.pos), rotation=Quaternion(w=-x, x=w, y=z, z=-y)
            ),
        )

    def _publish_view(self, stamp: Any) -> None:
        view = self.view = self.look()
        self.image_times[stamp.sec * 10**9 + stamp.nanosec] = time.monotonic()
        header = Header(stamp=stamp, frame_id=CAMERA_FRAME)
        self._info_out.publish(_camera_info(header, self._camera.size_wh, self._camera.focal))
        self._image_out.publish(_image(header, 'rgb8', view.color))
        self._depth_out.publish(_image(header, '32FC1', view.depth))

    def look(self) -> View:
        """Return what the robot's camera sees."""
        simulation = self.simulation
        camera = simulation.data.camera('eye')
        return self._camera.render(
            simulation.model, simulation.data, camera.xpos, camera.xmat.reshape(3, 3)
        )


def _seconds(time: Any) -> float:
    return float(time.sec + 1e-9 * time.nanosec)


def _vector(values: np.ndarray) -> Vector3:
    x, y, z = values.tolist()
    return Vector3(x=x, y=y, z=z)


def _image(header: Header, encoding: str, pixels: np.ndarray) -> Image:
    height, width = pixels.shape[:2]
    data = array('B')
    data.frombytes(pixels.tobytes())
    return Image(
        header=header,
        height=height,
        width=width,
        encoding=encoding,
        step=pixels.strides[0],
        data=data,
    )


def _camera_info(header: Header, size_wh: tuple[int, int], focal: float) -> CameraInfo:
    width, height = size_wh
    across, down = (width - 1) / 2, (height - 1) / 2  # Pixel centers are whole numbers.
    return CameraInfo(
        header=header,
        width=width,
        height=height,
        distortion_model='plumb_bob',
        d=[0.0] * 5,
        k=[focal, 0.0, across, 0.0, focal, down, 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[focal, 0.0, across, 0.0, 0.0, focal, down, 0.0, 0.0, 0.0, 1.0, 0.0],
    )
