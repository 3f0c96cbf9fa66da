// A camera in C++: publishes images whose first 8 bytes are their own address.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rclcpp/rclcpp.hpp"
#include "rclcpp_components/register_node_macro.hpp"
#include "sensor_msgs/msg/image.hpp"

namespace trt_ros_test_camera
{

class Camera : public rclcpp::Node
{
public:
  explicit Camera(const rclcpp::NodeOptions & options)
  : Node("camera", options)
  {
    width_ = static_cast<uint32_t>(declare_parameter<int64_t>("width", 640));
    height_ = static_cast<uint32_t>(declare_parameter<int64_t>("height", 480));
    auto picture = declare_parameter<std::string>("picture", "");  // A file of the pixels.
    if (!picture.empty()) {
      std::ifstream file(picture, std::ios::binary);
      picture_.assign(std::istreambuf_iterator<char>(file), {});
    }
    rclcpp::QoS qos(1);
    declare_parameter<bool>("reliable", false) ? qos.reliable() : qos.best_effort();
    publisher_ = create_publisher<sensor_msgs::msg::Image>("image", qos);
    auto rate_hz = declare_parameter<double>("rate_hz", 30.0);
    timer_ = create_wall_timer(std::chrono::duration<double>(1.0 / rate_hz), [this] {publish();});
  }

private:
  void publish()
  {
    auto image = std::make_unique<sensor_msgs::msg::Image>();
    image->width = width_;
    image->height = height_;
    image->encoding = "bgr8";
    image->step = 3 * width_;
    image->data.resize(static_cast<size_t>(image->step) * height_);
    if (picture_.size() == image->data.size()) {
      image->data = picture_;
    }
    const uint8_t * address = image->data.data();
    std::memcpy(image->data.data(), &address, sizeof(address));
    image->header.frame_id = "camera";
    // System time, which Python can read, too.
    image->header.stamp = rclcpp::Clock(RCL_SYSTEM_TIME).now();
    publisher_->publish(std::move(image));
  }

  uint32_t width_, height_;
  std::vector<uint8_t> picture_;
  rclcpp::Publisher<sensor_msgs::msg::Image>::SharedPtr publisher_;
  rclcpp::TimerBase::SharedPtr timer_;
};

}  // namespace trt_ros_test_camera

RCLCPP_COMPONENTS_REGISTER_NODE(trt_ros_test_camera::Camera)
