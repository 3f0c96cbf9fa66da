// Component classes of rclcpp_components that load the Python nodes of trt_ros.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "class_loader/class_loader.hpp"
#include "images.hpp"
#include "rcl_interfaces/msg/parameter.hpp"
#include "rclcpp/rclcpp.hpp"
#include "rclcpp/serialization.hpp"
#include "rclcpp_components/node_factory.hpp"
#include "rcutils/error_handling.h"
#include "python.hpp"

namespace trt_ros
{
namespace
{

#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
/// Version of Python that this library was compiled for.
#define PYTHON TEXT(PY_MAJOR_VERSION) "." TEXT(PY_MINOR_VERSION)

constexpr char kModule[] = "trt_ros.container.embedded";

/// Returns the first python3 on PATH: the one of an active virtual environment.
std::string python_on_path()
{
  const char * path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':'); ) {
    std::string candidate = folder + "/python3";
    if (!access(candidate.c_str(), X_OK)) {
      return candidate;
    }
  }
  return "";
}

/// Returns the version of Python in pyvenv.cfg of the virtual environment of a program, if any.
std::string version_of_environment(const std::string & python)
{
  std::ifstream file(python.substr(0, python.rfind('/')) + "/../pyvenv.cfg");
  for (std::string line; std::getline(file, line); ) {
    size_t begin = line.find_first_of("0123456789");
    if (line.compare(0, 7, "version") == 0 && begin != std::string::npos) {
      return line.substr(begin);
    }
  }
  return "";
}

std::string remedy()
{
  std::string python = python_on_path(), version = version_of_environment(python);
  return
    "Remedy: Start the container where 'python3 -c \"import " + std::string(kModule) + "\"' works "
    "with Python " PYTHON ": with the workspace sourced and, if there is one, its virtual "
    "environment activated. python3 is " + (python.empty() ? "not on PATH" : python) + " there" +
    (version.empty() ? "" : ", of a virtual environment of Python " + version) + ".";
}

/// Refuses another Python that the process loaded before: its structures differ.
void check_version()
{
  std::string expected = PYTHON ".";
  std::string version = Py_GetVersion();
  if (version.compare(0, expected.size(), expected)) {
    Dl_info info;
    bool is_found = dladdr(reinterpret_cast<void *>(&Py_GetVersion), &info) && info.dli_fname;
    throw std::runtime_error(
            "The plugin of trt_ros is for Python " PYTHON ", but this process has loaded Python " +
            version.substr(0, version.find(' ')) + ".\nCause: " +
            (is_found ? info.dli_fname : "another library") + " was loaded before, by LD_PRELOAD "
            "or by another component.\nRemedy: Load the nodes into a container of their own, or "
            "build the workspace with that Python.");
  }
}

void initialize_python()
{
  // Modules such as NumPy's find the symbols of Python only if these are global, but the container
  // loads this library with local symbols.
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(&Py_IsInitialized), &info)) {
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
  }
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;  // They are rclcpp's.
  config.parse_argv = 0;
  std::string python = python_on_path();
  PyStatus status = PyStatus_Ok();
  if (!python.empty()) {  // Python looks for the virtual environment beside its program.
    status = PyConfig_SetBytesString(&config, &config.program_name, python.c_str());
  }
  if (!PyStatus_Exception(status)) {
    status = Py_InitializeFromConfig(&config);
  }
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) {
    throw std::runtime_error(
            "Python " PYTHON " does not start in this process.\nCause: " +
            std::string(status.err_msg ? status.err_msg : "unknown") + "\n" + remedy());
  }
  PyEval_SaveThread();  // Releases the GIL.
}

/// Shuts down rclpy while all libraries are still loaded; Python itself is never finalized.
void shut_down_at_exit()
{
  WithGil gil;
  try {
    Object module = checked(PyImport_ImportModule(kModule));
    checked(PyObject_CallMethod(module.get(), "shut_down", nullptr));
  } catch (const std::exception &) {  // The process exits in any case.
  }
}

void start_python()
{
  static std::mutex mutex;  // A multi-threaded container loads components concurrently.
  std::lock_guard<std::mutex> lock(mutex);
  check_version();
  if (!Py_IsInitialized()) {
    initialize_python();
  }
}

Object import_module()
{
  static bool is_registered = false;  // The GIL protects it.
  PyObject * module = PyImport_ImportModule(kModule);
  if (!module) {
    throw std::runtime_error(
            "The nodes of trt_ros cannot be imported by Python " PYTHON
            ".\nCause: " + take_error() + "\n" + remedy());
  }
  if (!is_registered) {
    is_registered = true;
    std::atexit(shut_down_at_exit);
  }
  return Object(module);
}

Object arguments_of(const rclcpp::NodeOptions & options)
{
  Object list = checked(PyList_New(0));
  for (const auto & argument : options.arguments()) {
    Object text = checked(PyUnicode_DecodeFSDefault(argument.c_str()));
    PyList_Append(list.get(), text.get());
  }
  return list;
}

Object parameters_of(const rclcpp::NodeOptions & options)
{
  Object list = checked(PyList_New(0));
  rclcpp::Serialization<rcl_interfaces::msg::Parameter> serialization;
  for (const auto & parameter : options.parameter_overrides()) {
    rclcpp::SerializedMessage serialized;
    auto message = parameter.to_parameter_msg();
    serialization.serialize_message(&message, &serialized);
    const auto & raw = serialized.get_rcl_serialized_message();
    Object bytes = checked(
      PyBytes_FromStringAndSize(
        reinterpret_cast<const char *>(raw.buffer),
        static_cast<Py_ssize_t>(raw.buffer_length)));
    PyList_Append(list.get(), bytes.get());
  }
  return list;
}

std::string text_attribute(PyObject * object, const char * name)
{
  Object text = checked(PyObject_GetAttrString(object, name));
  return PyUnicode_AsUTF8(text.get());
}

}  // namespace

/// A Python node and the C++ node that receives its images.
class PythonNode
{
public:
  PythonNode(const std::string & plugin, const rclcpp::NodeOptions & options)
  {
    start_python();
    WithGil gil;
    Object module = import_module();
    images_ = make_images();
    Object arguments = arguments_of(options), parameters = parameters_of(options);
    Object flags = checked(
      Py_BuildValue(
        "{s:N,s:N,s:N,s:N}",
        "use_global_arguments", PyBool_FromLong(options.use_global_arguments()),
        "enable_rosout", PyBool_FromLong(options.enable_rosout()),
        "start_parameter_services", PyBool_FromLong(options.start_parameter_services()),
        "use_intra_process_comms", PyBool_FromLong(options.use_intra_process_comms())));
    rcutils_reset_error();  // Serialization leaves an error, which rclpy's first one would report.
    node_ = checked(
      PyObject_CallMethod(
        module.get(), "load", "sOOOO", plugin.c_str(), arguments.get(), parameters.get(),
        flags.get(), images_.get()));
    try {
      base_ = std::make_shared<ImageNode>(
        text_attribute(node_.get(), "image_node"), text_attribute(node_.get(), "name"),
        text_attribute(node_.get(), "namespace"), options);
      set_image_node(images_.get(), base_);
      checked(PyObject_CallMethod(node_.get(), "start", nullptr));
    } catch (...) {
      close();
      throw;
    }
  }

  ~PythonNode()
  {
    WithGil gil;
    close();
  }

  std::shared_ptr<ImageNode> base() const {return base_;}

private:
  void close()
  {
    Object node = std::move(node_), images = std::move(images_);
    try {
      checked(PyObject_CallMethod(node.get(), "close", nullptr));
    } catch (const std::exception & error) {
      RCLCPP_ERROR(rclcpp::get_logger("trt_ros"), "Unloading failed: %s", error.what());
    }
    set_image_node(images.get(), nullptr);
  }

  Object images_, node_;
  std::shared_ptr<ImageNode> base_;
};

class Factory : public rclcpp_components::NodeFactory
{
public:
  explicit Factory(const char * plugin)
  : plugin_(plugin) {}

  rclcpp_components::NodeInstanceWrapper create_node_instance(
    const rclcpp::NodeOptions & options) override
  {
    return {
      std::make_shared<PythonNode>(plugin_, options),
      [](const std::shared_ptr<void> & node) {
        return std::static_pointer_cast<PythonNode>(node)->base();
      }};
  }

private:
  const char * plugin_;
};

}  // namespace trt_ros

// For each component of setup.cfg; the container looks for classes by name.
#define TRT_ROS_COMPONENT(Name) \
  namespace trt_ros \
  { \
  struct Name : Factory \
  { \
    Name() : Factory("trt_ros::" #Name) {} \
  }; \
  } \
  CLASS_LOADER_REGISTER_CLASS(trt_ros::Name, rclcpp_components::NodeFactory)

#include "trt_ros_components.inc"
