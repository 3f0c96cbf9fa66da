// Images with plain rcl, at the speed of a C++ node: the reference of transport.py.

#include <cstring>
#include <ctime>

#include <rcl/rcl.h>
#include <rosidl_runtime_c/primitives_sequence_functions.h>
#include <rosidl_runtime_c/string_functions.h>
#include <sensor_msgs/msg/image.h>

static int64_t now_ns()
{
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Fill and publish one image; the message keeps its memory, as a member of a node does.
extern "C" int send_image(
  const rcl_publisher_t * publisher, const uint8_t * pixels, uint32_t height, uint32_t width,
  int64_t * stamp_ns)
{
  static sensor_msgs__msg__Image * image = sensor_msgs__msg__Image__create();
  const size_t size = 3UL * height * width;
  *stamp_ns = now_ns();
  if (image->data.size != size) {
    rosidl_runtime_c__uint8__Sequence__fini(&image->data);
    if (!rosidl_runtime_c__uint8__Sequence__init(&image->data, size)) {return -1;}
    rosidl_runtime_c__String__assign(&image->encoding, "bgr8");
  }
  image->header.stamp.sec = static_cast<int32_t>(*stamp_ns / 1000000000);
  image->header.stamp.nanosec = static_cast<uint32_t>(*stamp_ns % 1000000000);
  image->height = height;
  image->width = width;
  image->step = 3 * width;
  memcpy(image->data.data, pixels, size);
  return rcl_publish(publisher, image, nullptr);
}

// Take up to `count` images, each into a message of its own as rclcpp does. Writes the age of each,
// or -1 if its first and last byte differ. Returns the number of images received before `count` or a
// pause of `idle_ns`; waits 30 s for the first.
extern "C" int receive_images(
  const rcl_subscription_t * subscription, rcl_context_t * context, int count, int64_t idle_ns,
  int64_t * ages_ns)
{
  rcl_wait_set_t wait_set = rcl_get_zero_initialized_wait_set();
  if (rcl_wait_set_init(
      &wait_set, 1, 0, 0, 0, 0, 0, context, rcl_get_default_allocator()) != RCL_RET_OK)
  {
    return -1;
  }
  int taken = 0;
  while (taken < count) {
    rcl_wait_set_clear(&wait_set);
    rcl_wait_set_add_subscription(&wait_set, subscription, nullptr);
    if (rcl_wait(&wait_set, taken ? idle_ns : 30000000000LL) != RCL_RET_OK) {break;}
    sensor_msgs__msg__Image * image = sensor_msgs__msg__Image__create();
    if (rcl_take(subscription, image, nullptr, nullptr) == RCL_RET_OK) {
      const int64_t age_ns = now_ns() - image->header.stamp.sec * 1000000000LL -
        image->header.stamp.nanosec;
      const bool is_whole = image->data.size > 0 &&
        image->data.data[0] == image->data.data[image->data.size - 1];
      ages_ns[taken++] = is_whole ? age_ns : -1;
    }
    sensor_msgs__msg__Image__destroy(image);
  }
  rcl_wait_set_fini(&wait_set);
  return taken;
}
