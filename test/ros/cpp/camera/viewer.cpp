// A viewer in C++: reports each image that it receives.
#include <memory>
#include <numeric>
#include <sstream>

#include "rclcpp/rclcpp.hpp"
#include "rclcpp_components/register_node_macro.hpp"
#include "sensor_msgs/msg/image.hpp"
#include "std_msgs/msg/string.hpp"

namespace trt_ros_test_camera
{

/// Its callback owns what it uses: a multi-threaded container may unload the node meanwhile.
class Viewer : public rclcpp::Node
{
public:
  explicit Viewer(const rclcpp::NodeOptions & options)
  : Node("viewer", options)
  {
    rclcpp::QoS qos(5);
    declare_parameter<bool>("reliable", true) ? qos.reliable() : qos.best_effort();
    auto publisher = create_publisher<std_msgs::msg::String>("~/seen", 100);
    subscription_ = create_subscription<sensor_msgs::msg::Image>(
      "image", qos,
      [publisher](
        sensor_msgs::msg::Image::ConstSharedPtr image, const rclcpp::MessageInfo & info) {
        publisher->publish(report(*image, info.get_rmw_message_info().from_intra_process));
      });
  }

private:
  static std_msgs::msg::String report(const sensor_msgs::msg::Image & image, bool is_by_pointer)
  {
    // System time, which Python can write, too.
    auto age = rclcpp::Clock(RCL_SYSTEM_TIME).now() - rclcpp::Time(
      image.header.stamp, RCL_SYSTEM_TIME);
    std::ostringstream text;
    text << "{\"is_by_pointer\": " << (is_by_pointer ? "true" : "false") <<
      ", \"age\": " << age.seconds() <<
      ", \"stamp\": [" << image.header.stamp.sec << ", " << image.header.stamp.nanosec << "]" <<
      ", \"frame_id\": \"" << image.header.frame_id << "\"" <<
      ", \"encoding\": \"" << image.encoding << "\"" <<
      ", \"size\": [" << image.width << ", " << image.height << ", " << image.step << "]" <<
      ", \"sum\": " << std::accumulate(image.data.begin(), image.data.end(), 0ull) << "}";
    std_msgs::msg::String message;
    message.data = text.str();
    return message;
  }

  rclcpp::Subscription<sensor_msgs::msg::Image>::SharedPtr subscription_;
};

}  // namespace trt_ros_test_camera

RCLCPP_COMPONENTS_REGISTER_NODE(trt_ros_test_camera::Viewer)
