// Owned references and the GIL.
#ifndef TRT_ROS__PYTHON_HPP_
#define TRT_ROS__PYTHON_HPP_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

// Structures of Python differ between minor versions.
static_assert(
  PY_MAJOR_VERSION == TRT_ROS_PYTHON_MAJOR && PY_MINOR_VERSION == TRT_ROS_PYTHON_MINOR,
  "Python.h is that of another version than the library of Python that is linked.");

namespace trt_ros
{

struct Decref
{
  void operator()(PyObject * object) const {Py_DECREF(object);}
};

/// An owned reference; the GIL must be held where it is copied, moved or destroyed.
using Object = std::unique_ptr<PyObject, Decref>;

/// Holds the GIL; for threads of any origin.
class WithGil
{
public:
  WithGil()
  : state_(PyGILState_Ensure()) {}
  ~WithGil() {PyGILState_Release(state_);}
  WithGil(const WithGil &) = delete;
  WithGil & operator=(const WithGil &) = delete;

private:
  PyGILState_STATE state_;
};

/// Releases the GIL of the current thread for a call that waits.
class WithoutGil
{
public:
  WithoutGil()
  : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {PyEval_RestoreThread(state_);}
  WithoutGil(const WithoutGil &) = delete;
  WithoutGil & operator=(const WithoutGil &) = delete;

private:
  PyThreadState * state_;
};

/// Clears the current Python exception and returns its text.
inline std::string take_error()
{
  PyObject * type, * value, * traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Object owned_type(type), owned_value(value), owned_traceback(traceback);
  Object text(value ? PyObject_Str(value) : nullptr);
  const char * utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string name = type ? reinterpret_cast<PyTypeObject *>(type)->tp_name : "unknown error";
  std::string result = utf8 && *utf8 ? utf8 : name;
  PyErr_Clear();
  return result;
}

/// Returns a new reference; throws std::runtime_error with the text of the Python exception.
inline Object checked(PyObject * object)
{
  if (!object) {
    throw std::runtime_error(take_error());
  }
  return Object(object);
}

/// A Python object that owns a C++ value.
template<typename T>
struct Box
{
  PyObject_HEAD
  T value;

  static T & of(PyObject * object) {return reinterpret_cast<Box *>(object)->value;}

  /// Returns a new object; nullptr with a Python exception where there is no memory.
  static PyObject * make(PyTypeObject * type, T value)
  {
    PyObject * object = type->tp_alloc(type, 0);
    if (object) {
      new (&of(object)) T(std::move(value));
    }
    return object;
  }

  static void dealloc(PyObject * object)
  {
    PyTypeObject * type = Py_TYPE(object);
    of(object).~T();
    type->tp_free(object);
    Py_DECREF(type);
  }
};

}  // namespace trt_ros

#endif  // TRT_ROS__PYTHON_HPP_
