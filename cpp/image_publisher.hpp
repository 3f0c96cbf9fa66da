// A publisher of images to C++ nodes of the container.
#ifndef TRT_ROS__IMAGE_PUBLISHER_HPP_
#define TRT_ROS__IMAGE_PUBLISHER_HPP_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "rclcpp/publisher.hpp"
#include "sensor_msgs/msg/image.hpp"

namespace trt_ros
{

/// Publishes the images of an rclpy publisher by pointer, within the process only.
/**
 * Subscriptions of rclcpp with intra-process communication ignore messages from DDS whose
 * publisher, by its gid, also serves them by pointer. This one therefore has the gid of the
 * rclpy publisher. Its own endpoint in DDS has a name without the prefix of ROS topics, so that
 * it is not a second publisher of the topic.
 */
class ImagePublisher : public rclcpp::Publisher<sensor_msgs::msg::Image>
{
public:
  using Image = sensor_msgs::msg::Image;

  static std::shared_ptr<ImagePublisher> make(
    rclcpp::node_interfaces::NodeBaseInterface & node, const std::string & topic,
    const std::string & gid, rclcpp::QoS qos)
  {
    rclcpp::PublisherOptions options;
    options.use_intra_process_comm = rclcpp::IntraProcessSetting::Enable;
    options.use_default_callbacks = false;
    qos.avoid_ros_namespace_conventions(true);
    auto publisher = std::make_shared<ImagePublisher>(&node, topic, qos, options);
    auto & data = publisher->rmw_gid_.data;
    std::fill(std::begin(data), std::end(data), 0);
    std::copy_n(gid.begin(), std::min(gid.size(), sizeof(data)), std::begin(data));
    publisher->post_init_setup(&node, topic, qos, options);
    return publisher;
  }

  using rclcpp::Publisher<Image>::Publisher;

  /// Publishes to the subscriptions of this process.
  void publish_by_pointer(std::unique_ptr<Image> image)
  {
    do_intra_process_publish(std::move(image));
  }
};

}  // namespace trt_ros

#endif  // TRT_ROS__IMAGE_PUBLISHER_HPP_
