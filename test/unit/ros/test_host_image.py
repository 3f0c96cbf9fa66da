"""Images of C++ nodes whose data are not in host memory (rosidl::Buffer), without that ROS."""

from pathlib import Path
import shutil
import subprocess

import pytest

CPP = Path(__file__).parents[3] / 'cpp'

# As rosidl_buffer 5.2 has them (ros2/rosidl 027b70e6, buffer.hpp): what a subscriber uses.
PROGRAM = r"""
#include <cassert>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "host_image.hpp"

struct Buffer
{
  Buffer() = default;
  Buffer(std::vector<uint8_t> && values): values_(std::move(values)) {}
  explicit Buffer(size_t size): values_(size) {}
  Buffer(const std::string & backend, std::vector<uint8_t> values)
  : backend_(backend), values_(std::move(values)) {}

  std::string get_backend_type() const {return backend_;}
  const uint8_t * data() const
  {
    if (backend_ != "cpu") {
      throw std::runtime_error("Operation requires CPU backend.");
    }
    return values_.data();
  }
  size_t size() const {return values_.size();}
  std::vector<uint8_t> to_vector() const
  {
    if (backend_ == "lost") {
      throw std::runtime_error("The memory is gone.");
    }
    return values_;
  }

private:
  std::string backend_ = "cpu";
  std::vector<uint8_t> values_;
};

template<typename Data>
struct Image
{
  std::string header, encoding;
  uint32_t height = 0, width = 0, step = 0;
  uint8_t is_bigendian = 0;
  Data data;
};

template<typename Data>
std::shared_ptr<const Image<Data>> image_of(Data && data)
{
  Image<Data> image{"header", "bgr8", 2, 3, 9, 1, {}};
  image.data = std::move(data);
  return std::make_shared<const Image<Data>>(std::move(image));
}

int main()
{
  std::vector<uint8_t> values{1, 2, 3};
  auto plain = image_of(std::vector<uint8_t>(values));
  assert(trt_ros::on_host(plain) == plain);
  auto host = image_of(Buffer(std::vector<uint8_t>(values)));
  assert(trt_ros::on_host(host) == host);

  auto device = image_of(Buffer("cuda", values));
  auto copy = trt_ros::on_host(device);
  assert(copy != device && copy->data.size() == 3 && copy->data.data()[2] == 3);
  assert(copy->header == "header" && copy->encoding == "bgr8" && copy->step == 9);
  assert(copy->height == 2 && copy->width == 3 && copy->is_bigendian == 1);

  try {
    trt_ros::on_host(image_of(Buffer("lost", values)));
    return 1;
  } catch (const std::runtime_error &) {
    return 0;  // The caller makes it an exception of Python.
  }
}
"""


def test_data_of_another_backend_are_copied_to_the_host(tmp_path):
    if shutil.which('g++') is None:
        pytest.skip('needs g++')
    source, program = tmp_path / 'program.cpp', tmp_path / 'program'
    source.write_text(PROGRAM)
    flags = ['-std=c++17', '-Wall', '-Wextra', '-Werror']
    subprocess.run(['g++', *flags, f'-I{CPP}', source, '-o', program], check=True)
    subprocess.run([program], check=True)
