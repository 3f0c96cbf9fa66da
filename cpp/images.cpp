#include "images.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host_image.hpp"
#include "rclcpp/create_subscription.hpp"
#include "rclcpp/exceptions.hpp"
#include "sensor_msgs/msg/image.hpp"

namespace trt_ros
{
namespace
{

using sensor_msgs::msg::Image;

struct Taken
{
  size_t lost = 0;
  std::vector<int> incompatible;
  std::deque<std::shared_ptr<const Image>> images;
};

/// Images on their way from the executor to a Python thread; the newest win.
class ImageQueue
{
public:
  explicit ImageQueue(size_t depth)
  : depth_(depth) {}

  void put(std::shared_ptr<const Image> image)
  {
    std::shared_ptr<const Image> replaced;  // Freed after the lock is released.
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (waiting_.images.size() == depth_) {
        replaced = std::move(waiting_.images.front());
        waiting_.images.pop_front();
        ++waiting_.lost;
      }
      waiting_.images.push_back(std::move(image));
      is_woken_ = true;
    }
    changed_.notify_one();
  }

  void report(int incompatible)
  {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      waiting_.incompatible.push_back(incompatible);
      is_woken_ = true;
    }
    changed_.notify_one();
  }

  void wake(bool is_closed = false)
  {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_woken_ = true;
      is_closed_ |= is_closed;
    }
    changed_.notify_one();
  }

  Taken take()
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] {return is_woken_ || is_closed_;});
    is_woken_ = false;
    return std::exchange(waiting_, Taken());
  }

private:
  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Taken waiting_;
  bool is_woken_ = false, is_closed_ = false;
};

struct Subscription
{
  std::shared_ptr<ImageQueue> queue;  // Shared with the callbacks.
  std::shared_ptr<rclcpp::SubscriptionBase> subscription;  // Empty once closed.
};

std::shared_ptr<rclcpp::SubscriptionBase> subscribe(
  ImageNode & node, const std::string & topic, bool is_reliable, size_t depth,
  std::shared_ptr<ImageQueue> queue, bool has_events)
{
  rclcpp::SubscriptionOptions options;
  options.use_intra_process_comm = rclcpp::IntraProcessSetting::Enable;
  if (has_events) {
    options.event_callbacks.incompatible_qos_callback =
      [queue](const rclcpp::QOSRequestedIncompatibleQoSInfo & event) {
        queue->report(event.last_policy_kind);
      };
  }
  rclcpp::QoS qos{rclcpp::KeepLast(depth)};
  is_reliable ? qos.reliable() : qos.best_effort();
  auto callback = [queue](std::shared_ptr<const Image> image) {queue->put(std::move(image));};
  auto factory = rclcpp::create_subscription_factory<Image>(
    std::move(callback), options,
    rclcpp::message_memory_strategy::MessageMemoryStrategy<Image>::create_default());
  auto subscription = node.topics.create_subscription(topic, factory, qos);
  node.topics.add_subscription(subscription, nullptr);
  return subscription;
}

// Python types. No C++ exception may leave these functions.

PyTypeObject * g_image_data_type, * g_subscription_type, * g_publication_type, * g_images_type;

using ImageData = Box<std::shared_ptr<const Image>>;
using SubscriptionBox = Box<Subscription>;
using Images = Box<std::shared_ptr<ImageNode>>;

int get_buffer(PyObject * self, Py_buffer * view, int flags)
{
  auto & data = ImageData::of(self)->data;
  return PyBuffer_FillInfo(
    view, self, const_cast<uint8_t *>(data.data()), static_cast<Py_ssize_t>(data.size()), 1, flags);
}

template<typename Function>
PyObject * guarded(Function function)
{
  try {
    return function();
  } catch (const std::exception & error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

std::shared_ptr<ImageNode> node_of(PyObject * images)
{
  auto node = Images::of(images);
  if (!node) {
    throw std::runtime_error("The node is being constructed or destroyed.");
  }
  return node;
}

PyObject * open(PyObject * self, PyObject * args)
{
  const char * topic;
  int is_reliable;
  Py_ssize_t depth;
  if (!PyArg_ParseTuple(args, "spn", &topic, &is_reliable, &depth)) {
    return nullptr;
  }
  return guarded(
    [&] {
      auto node = node_of(self);
      Subscription opened{std::make_shared<ImageQueue>(depth), nullptr};
      {
        WithoutGil without_gil;
        try {
          opened.subscription = subscribe(*node, topic, is_reliable, depth, opened.queue, true);
        } catch (const rclcpp::UnsupportedEventTypeException &) {
          opened.subscription = subscribe(*node, topic, is_reliable, depth, opened.queue, false);
        }
      }
      return SubscriptionBox::make(g_subscription_type, std::move(opened));
    });
}

/// Returns the fields of an image, as ContainerImages.take() has them.
PyObject * fields_of(const std::shared_ptr<const Image> & received)
{
  const Image & image = *received;
  auto text = [](const std::string & value) {
      return PyUnicode_DecodeUTF8(value.data(), value.size(), "replace");
    };
  // N takes over the references, and fails where one is nullptr.
  return Py_BuildValue(
    "(iINIINBIN)", image.header.stamp.sec, image.header.stamp.nanosec,
    text(image.header.frame_id), image.height, image.width, text(image.encoding),
    image.is_bigendian, image.step, ImageData::make(g_image_data_type, received));
}

PyObject * take(PyObject *, PyObject * subscription)
{
  return guarded(
    [&] {
      Taken taken;
      {
        auto queue = SubscriptionBox::of(subscription).queue;
        WithoutGil without_gil;
        taken = queue->take();
        for (auto & image : taken.images) {
          image = on_host(std::move(image));
        }
      }
      Object images(PyList_New(0)), incompatible(PyList_New(0));
      if (!images || !incompatible) {
        return static_cast<PyObject *>(nullptr);
      }
      for (int kind : taken.incompatible) {
        Object number(PyLong_FromLong(kind));
        if (!number || PyList_Append(incompatible.get(), number.get())) {
          return static_cast<PyObject *>(nullptr);
        }
      }
      for (const auto & received : taken.images) {
        Object fields(fields_of(received));
        if (!fields || PyList_Append(images.get(), fields.get())) {
          return static_cast<PyObject *>(nullptr);
        }
      }
      return Py_BuildValue(
        "nNN", static_cast<Py_ssize_t>(taken.lost), incompatible.release(), images.release());
    });
}

PyObject * wake(PyObject *, PyObject * subscription)
{
  SubscriptionBox::of(subscription).queue->wake();
  Py_RETURN_NONE;
}

PyObject * close(PyObject *, PyObject * object)
{
  auto & subscription = SubscriptionBox::of(object);
  subscription.queue->wake(true);
  auto closed = std::move(subscription.subscription);
  {
    WithoutGil without_gil;
    closed.reset();
  }
  Py_RETURN_NONE;
}

/// Keeps a publisher in its node, which owns it.
class Publication
{
public:
  Publication(
    const std::shared_ptr<ImageNode> & node, const std::shared_ptr<ImagePublisher> & publisher)
  : node_(node), publisher_(publisher)
  {
    node->publishers.insert(publisher);
  }
  ~Publication()
  {
    if (auto node = node_.lock()) {
      node->publishers.erase(publisher_.lock());
    }
  }
  Publication(const Publication &) = delete;
  Publication & operator=(const Publication &) = delete;

  std::shared_ptr<ImagePublisher> publisher() const {return publisher_.lock();}

private:
  std::weak_ptr<ImageNode> node_;
  std::weak_ptr<ImagePublisher> publisher_;
};

using PublicationBox = Box<std::unique_ptr<Publication>>;

PyObject * advertise(PyObject * self, PyObject * args)
{
  const char * topic, * gid;
  int is_reliable;
  Py_ssize_t gid_size, depth;
  if (!PyArg_ParseTuple(args, "sy#pn", &topic, &gid, &gid_size, &is_reliable, &depth)) {
    return nullptr;
  }
  return guarded(
    [&] {
      auto node = node_of(self);
      rclcpp::QoS qos{rclcpp::KeepLast(depth)};
      is_reliable ? qos.reliable() : qos.best_effort();
      std::shared_ptr<ImagePublisher> publisher;
      {
        WithoutGil without_gil;
        publisher = ImagePublisher::make(*node, topic, std::string(gid, gid_size), qos);
      }
      return PublicationBox::make(
        g_publication_type, std::make_unique<Publication>(node, publisher));
    });
}

PyObject * publish(PyObject *, PyObject * args)
{
  PyObject * publication;
  auto image = std::make_unique<Image>();
  const char * frame_id, * encoding;
  Py_ssize_t frame_id_size, encoding_size;
  Py_buffer data;
  if (!PyArg_ParseTuple(
      args, "O(iI)s#IIs#bIy*", &publication, &image->header.stamp.sec,
      &image->header.stamp.nanosec, &frame_id, &frame_id_size, &image->height, &image->width,
      &encoding, &encoding_size, &image->is_bigendian, &image->step, &data))
  {
    return nullptr;
  }
  PyObject * result = guarded(
    [&] {
      auto publisher = PublicationBox::of(publication)->publisher();
      size_t count = 0;
      {
        WithoutGil without_gil;
        count = publisher ? publisher->get_intra_process_subscription_count() : 0;
        if (count > 0) {
          image->header.frame_id.assign(frame_id, frame_id_size);
          image->encoding.assign(encoding, encoding_size);
          auto bytes = static_cast<const uint8_t *>(data.buf);
          image->data.assign(bytes, bytes + data.len);
          publisher->publish_by_pointer(std::move(image));
        }
      }
      return PyLong_FromSize_t(count);
    });
  PyBuffer_Release(&data);
  return result;
}

PyTypeObject * make_type(
  const char * name, int size, std::vector<PyType_Slot> slots)
{
  slots.push_back({0, nullptr});
  PyType_Spec spec{name, size, 0, Py_TPFLAGS_DEFAULT, slots.data()};
  return reinterpret_cast<PyTypeObject *>(checked(PyType_FromSpec(&spec)).release());
}

PyMethodDef g_methods[] = {
  {"open", open, METH_VARARGS, nullptr},
  {"take", take, METH_O, nullptr},
  {"wake", wake, METH_O, nullptr},
  {"close", close, METH_O, nullptr},
  {"advertise", advertise, METH_VARARGS, nullptr},
  {"publish", publish, METH_VARARGS, nullptr},
  {nullptr, nullptr, 0, nullptr},
};

template<typename T>
PyType_Slot dealloc_slot()
{
  return {Py_tp_dealloc, reinterpret_cast<void *>(&Box<T>::dealloc)};
}

void make_types()
{
  if (g_images_type) {
    return;
  }
  g_image_data_type = make_type(
    "trt_ros.ImageData", sizeof(ImageData),
    {dealloc_slot<std::shared_ptr<const Image>>(),
      {Py_bf_getbuffer, reinterpret_cast<void *>(&get_buffer)}});
  g_subscription_type = make_type(
    "trt_ros.ImageSubscription", sizeof(SubscriptionBox), {dealloc_slot<Subscription>()});
  g_publication_type = make_type(
    "trt_ros.ImagePublication", sizeof(PublicationBox),
    {dealloc_slot<std::unique_ptr<Publication>>()});
  g_images_type = make_type(
    "trt_ros.Images", sizeof(Images),
    {dealloc_slot<std::shared_ptr<ImageNode>>(), {Py_tp_methods, g_methods}});
}

rclcpp::NodeOptions hidden(const rclcpp::NodeOptions & options)
{
  // The names are resolved already; the logs are those of the Python node.
  return rclcpp::NodeOptions(options).use_global_arguments(false).arguments({}).enable_rosout(false);
}

}  // namespace

ImageNode::ImageNode(
  const std::string & own_name, const std::string & reported_name, const std::string & name_space,
  const rclcpp::NodeOptions & options)
: NodeBase(
    own_name, name_space, options.context(), *hidden(options).get_rcl_node_options(),
    options.use_intra_process_comms(), false),
  timers(this), topics(this, &timers), reported_name_(reported_name),
  full_name_(name_space + (name_space.back() == '/' ? "" : "/") + reported_name)
{
}

Object make_images()
{
  make_types();
  return checked(Images::make(g_images_type, nullptr));
}

void set_image_node(PyObject * images, std::shared_ptr<ImageNode> node)
{
  Images::of(images) = std::move(node);
}

}  // namespace trt_ros
