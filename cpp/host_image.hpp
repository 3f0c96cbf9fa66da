// Images whose data are in host memory.
#ifndef TRT_ROS__HOST_IMAGE_HPP_
#define TRT_ROS__HOST_IMAGE_HPP_

#include <memory>
#include <type_traits>
#include <utility>

namespace trt_ros
{

/// Whether data may be elsewhere, as those of rosidl::Buffer since ROS 2 Lyrical may be on a GPU.
template<typename Data, typename = void>
struct HasBackend : std::false_type {};
template<typename Data>
struct HasBackend<Data, std::void_t<decltype(std::declval<const Data &>().get_backend_type())>>
  : std::true_type {};

/// Returns an image with its data in host memory: itself, or a copy that the backend makes.
template<typename Image>
std::shared_ptr<const Image> on_host(std::shared_ptr<const Image> image)
{
  using Data = decltype(image->data);
  if constexpr (HasBackend<Data>::value) {
    if (image->data.get_backend_type() != "cpu") {
      auto copy = std::make_shared<Image>();
      copy->header = image->header;
      copy->height = image->height;
      copy->width = image->width;
      copy->encoding = image->encoding;
      copy->is_bigendian = image->is_bigendian;
      copy->step = image->step;
      copy->data = Data(image->data.to_vector());
      return copy;
    }
  }
  return image;
}

}  // namespace trt_ros

#endif  // TRT_ROS__HOST_IMAGE_HPP_
