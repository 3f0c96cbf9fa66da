#!/usr/bin/env bash
# Build tf2_ros for the ROS 2 of `./dev`, whose wheels lack it; needs ninja.
#
#     git clone --depth 1 -b jazzy https://github.com/ros2/geometry2 /tmp/geometry2
#     ./dev shell -c 'tools/build_tf2.sh /tmp/geometry2 /tmp/tf2'
#     ./dev shell -c 'source /tmp/tf2/setup.bash && python -m pytest test/ros/test_rig.py test/ros/test_detections_3d.py \
#         test/ros/inputs/test_transforms.py'
set -euo pipefail
sources=$1 prefix=$2 ros=$VIRTUAL_ENV
python=lib/$(basename "$(echo "$ros"/lib/python3.*)")/site-packages
mkdir -p "$prefix/$python"
cat > "$prefix/setup.bash" << SETUP
export AMENT_PREFIX_PATH=$prefix:\$AMENT_PREFIX_PATH CMAKE_PREFIX_PATH=$prefix:\$CMAKE_PREFIX_PATH
export LD_LIBRARY_PATH=$prefix/lib:\$LD_LIBRARY_PATH PYTHONPATH=$prefix/$python:\$PYTHONPATH
SETUP
source "$prefix/setup.bash"
for package in tf2_msgs tf2 tf2_py; do
  cmake -S "$sources/$package" -B "$prefix/build/$package" -G Ninja -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DBUILD_SHARED_LIBS=ON \
    -DPython3_EXECUTABLE="$ros/bin/python"
  cmake --build "$prefix/build/$package" --target install -j2
done
cp -r "$sources/tf2_ros_py/tf2_ros" "$prefix/$python"
