#!/usr/bin/env bash
# Build Cyclone DDS and its rmw for the ROS 2 of `./dev`, whose rcl is linked to Fast DDS.
#
#     git clone -b releases/0.10.x https://github.com/eclipse-cyclonedds/cyclonedds /tmp/cyclonedds
#     git clone -b jazzy https://github.com/ros2/rmw_cyclonedds /tmp/rmw_cyclonedds
#     ./dev shell -c 'tools/build_cyclonedds.sh /tmp/cyclonedds /tmp/rmw_cyclonedds /tmp/cyclone'
#     ./dev shell -c 'LD_LIBRARY_PATH=/tmp/cyclone/lib:$LD_LIBRARY_PATH python -m pytest test/ros/dds'
set -euo pipefail
cyclonedds=$1 rmw=$2/rmw_cyclonedds_cpp prefix=$3
mkdir -p "$prefix/stubs" "$prefix/lib"
options=(-DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF)
cmake -S "$cyclonedds" -B "$prefix/build/cyclonedds" "${options[@]}" -DENABLE_SECURITY=NO -DENABLE_SSL=NO \
  -DENABLE_SHM=NO -DBUILD_IDLC=NO -DBUILD_DDSPERF=NO
cmake --build "$prefix/build/cyclonedds" --target install -j2
# The wheels name a library of their build machine, of which nothing is used.
gcc -shared -xc /dev/null -o "$prefix/stubs/liblttng-ust.so"
LDFLAGS="-Wl,--as-needed -L$prefix/stubs" cmake -S "$rmw" -B "$prefix/build/rmw" "${options[@]}" \
  -DCMAKE_PREFIX_PATH="$prefix;$VIRTUAL_ENV"
LIBRARY_PATH=$prefix/stubs cmake --build "$prefix/build/rmw" --target install -j2
# rcl of the wheels asks for Fast DDS by this name.
ln -sf librmw_cyclonedds_cpp.so "$prefix/lib/librmw_fastrtps_cpp.so"
