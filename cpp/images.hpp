// Images to and from other nodes of the container, and the functions for Python.
#ifndef TRT_ROS__IMAGES_HPP_
#define TRT_ROS__IMAGES_HPP_

#include <memory>
#include <set>
#include <string>

#include "image_publisher.hpp"
#include "python.hpp"
#include "rclcpp/node_interfaces/node_base.hpp"
#include "rclcpp/node_interfaces/node_timers.hpp"
#include "rclcpp/node_interfaces/node_topics.hpp"
#include "rclcpp/rclcpp.hpp"

namespace trt_ros
{

/// The node that receives and sends images for a Python node, and represents it in the container.
/**
 * The executor of the container spins this node, whose own name is hidden. The container reports
 * the name of the Python node, which rclpy created and spins.
 */
class ImageNode : public rclcpp::node_interfaces::NodeBase
{
public:
  ImageNode(
    const std::string & own_name, const std::string & reported_name, const std::string & name_space,
    const rclcpp::NodeOptions & options);

  const char * get_name() const override {return reported_name_.c_str();}
  const char * get_fully_qualified_name() const override {return full_name_.c_str();}

  rclcpp::node_interfaces::NodeTimers timers;
  rclcpp::node_interfaces::NodeTopics topics;
  std::set<std::shared_ptr<ImagePublisher>> publishers;  // The GIL protects it.

private:
  std::string reported_name_;
  std::string full_name_;
};

/// Returns a Python object with the methods open, take, wake, close, advertise and publish.
/**
 * They are described by ContainerImages in trt_ros/ros/dds/container_images.py.
 */
Object make_images();

/// Sets the node of `open` and `advertise`, which fail without one.
/**
 * Reset it when the Python node is destroyed: a node that is left at the exit of the process
 * blocks Fast DDS, and Python may keep the object.
 */
void set_image_node(PyObject * images, std::shared_ptr<ImageNode> node);

}  // namespace trt_ros

#endif  // TRT_ROS__IMAGES_HPP_
