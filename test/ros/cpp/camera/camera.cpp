// A camera in C++: publishes images whose first 8 bytes are their own address.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "rclcpp/rclcpp.hpp"
#include "rclcpp_components/register_node_macro.hpp"
#include "sensor_msgs/msg/image.hpp"

namespace trt_ros_test_camera
{

/// Its timer owns what it uses: a multi-threaded container may unload the node during the callback.
class Camera : public rclcpp::Node
{
public:
  explicit Camera(const rclcpp::NodeOptions & options)
  : Node("camera", options)
  {
    sensor_msgs::msg::Image pattern;
    pattern.header.frame_id = "camera";
    pattern.width = static_cast<uint32_t>(declare_parameter<int64_t>("width", 640));
    pattern.height = static_cast<uint32_t>(declare_parameter<int64_t>("height", 480));
    pattern.encoding = "bgr8";
    pattern.step = 3 * pattern.width;
    auto picture = declare_parameter<std::string>("picture", "");  // A file of the pixels.
    if (!picture.empty()) {
      std::ifstream file(picture, std::ios::binary);
      pattern.data.assign(std::istreambuf_iterator<char>(file), {});
    }
    pattern.data.resize(static_cast<size_t>(pattern.step) * pattern.height);
    rclcpp::QoS qos(1);
    declare_parameter<bool>("reliable", false) ? qos.reliable() : qos.best_effort();
    auto publisher = create_publisher<sensor_msgs::msg::Image>("image", qos);
    auto rate_hz = declare_parameter<double>("rate_hz", 30.0);
    timer_ = create_wall_timer(
      std::chrono::duration<double>(1.0 / rate_hz), [publisher, pattern = std::move(pattern)] {
        auto image = std::make_unique<sensor_msgs::msg::Image>(pattern);
        const uint8_t * address = image->data.data();
        std::memcpy(image->data.data(), &address, sizeof(address));
        // System time, which Python can read, too.
        image->header.stamp = rclcpp::Clock(RCL_SYSTEM_TIME).now();
        publisher->publish(std::move(image));
      });
  }

private:
  rclcpp::TimerBase::SharedPtr timer_;
};

}  // namespace trt_ros_test_camera

RCLCPP_COMPONENTS_REGISTER_NODE(trt_ros_test_camera::Camera)
