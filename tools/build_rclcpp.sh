#!/usr/bin/env bash
# Build rclcpp and rclcpp_components for the ROS 2 of `./dev`, whose wheels lack them; needs ninja and patchelf.
#
#     mkdir /tmp/sources && cd /tmp/sources
#     gbp() { git clone --depth 1 -b "release/kilted/$2/$3" "https://github.com/ros2-gbp/$1-release" "$2"; }
#     git clone --depth 1 https://github.com/ros/console_bridge
#     gbp rcl_interfaces statistics_msgs 2.3.1-1; gbp libstatistics_collector libstatistics_collector 2.0.1-2
#     gbp class_loader class_loader 2.8.1-1; gbp rclcpp rclcpp 29.5.9-1; gbp rclcpp rclcpp_components 29.5.9-1
#     ./dev --ros kilted shell -c 'tools/build_rclcpp.sh /tmp/sources /tmp/rclcpp'
#     TRT_ROS_TEST_RCLCPP=/tmp/rclcpp ./dev --ros kilted test cpp
#
# Jazzy: statistics_msgs 2.0.3-1, libstatistics_collector 1.7.4-1, class_loader 2.7.0-3, rclcpp and rclcpp_components 28.1.21-1.
set -euo pipefail
sources=$1 prefix=$2 ros=$VIRTUAL_ENV
mkdir -p "$prefix/lib" "$prefix/share/console_bridge_vendor/cmake"
echo 'set(console_bridge_vendor_FOUND TRUE)' > "$prefix/share/console_bridge_vendor/cmake/console_bridge_vendorConfig.cmake"
# The wheels name libraries of the machine that built them.
sed -i 's/"lttng-ust;/"/' "$ros"/share/tracetools/cmake/*.cmake
for folder in "$ros"/share/fast{dds,rtps}/cmake; do
  [ ! -d "$folder" ] || sed -i 's|/usr/lib64/libtinyxml2.so;||; s|\\$<\\$<BOOL:1>:OpenSSL[^"]*crypt32.lib>>;||
    /^ *find_package(\(TinyXML2\|OpenSSL\)/d' "$folder"/*.cmake
done
# Modules for Python, which a C++ process cannot load.
for library in librcl librcl_action librcl_lifecycle; do
  cp -L "$ros/lib/$library.so" "$prefix/lib/$library.so"
  for needed in $(readelf -d "$prefix/lib/$library.so" | grep -o 'lib[a-z_]*__rosidl_generator_py.so'); do
    patchelf --remove-needed "$needed" "$prefix/lib/$library.so"
  done
  patchelf --set-rpath "$(echo "$ros"/lib/python3.*/site-packages/ros_rcl.libs):$ros/lib" "$prefix/lib/$library.so"
done
export CMAKE_PREFIX_PATH=$prefix:$CMAKE_PREFIX_PATH AMENT_PREFIX_PATH=$prefix:$AMENT_PREFIX_PATH
export LD_LIBRARY_PATH=$prefix/lib:$LD_LIBRARY_PATH
for package in console_bridge statistics_msgs libstatistics_collector class_loader rclcpp rclcpp_components; do
  cmake -S "$sources/$package" -B "$prefix/build/$package" -G Ninja -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_UNITY_BUILD="$([ $package = rclcpp ] && echo ON || echo OFF)" -DPython3_EXECUTABLE="$ros/bin/python" \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--unresolved-symbols=ignore-in-shared-libs
  cmake --build "$prefix/build/$package" --target install -j2
done
