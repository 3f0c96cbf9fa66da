#!/usr/bin/env bash
# Run the unit tests in Debian's Python for arm64, emulated by qemu; needs no rights and no arm64 machine.
#
#     sudo apt install qemu-user-static proot
#     tools/emulate_aarch64.sh test/unit/vision
#
# Packages go to ~/.cache/trt_ros_test/aarch64 at the first run: 1.2 GB. Without ROS and TensorRT, whose tests are skipped.
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/trt_ros_test/aarch64
requirements=$checkout/standalone/requirements
if [ ! -e "$folder/ready" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"/{state/lists/partial,cache/archives/partial,root}
  touch "$folder/state/status"
  cat > "$folder/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures {"arm64";};
Dir::State "$folder/state";
Dir::State::status "$folder/state/status";
Dir::Cache "$folder/cache";
CONF
  export APT_CONFIG=$folder/apt.conf
  apt-get update -qq
  apt-get install -qq --download-only --no-install-recommends bash coreutils git python3 python3-distutils g++
  for package in "$folder"/cache/archives/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
  ln -sf bash "$folder/root/bin/sh"
  version=$(cd "$folder/root/usr/bin" && ls python3.?? | head -1)
  sed '/^ruff\|^mypy\|^types-\|^colcon\|^coverage/d' "$requirements"/{runtime,test,gpu}.txt | grep -v ^tensorrt > "$folder/requirements.txt"
  python3 -m pip install --quiet --no-compile --target "$folder/root/usr/local/lib/$version/dist-packages" \
    --python-version "${version#python}" --only-binary=:all: --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux_2_26_aarch64 --platform manylinux2014_aarch64 \
    -r "$folder/requirements.txt" -c "$requirements/constraints.txt"
  touch "$folder/ready"
fi
unset OPENBLAS_CORETYPE PYTHONDONTWRITEBYTECODE
export PYTHONPATH=$checkout PYTHONPYCACHEPREFIX=$folder/bytecode
# proot 5.1 looks for executable files on this machine, too.
export GCC_EXEC_PREFIX=$folder/root/usr/lib/gcc/
# proot 5.1 ends with the status of whatever process ends last, not with that of pytest.
status=$(mktemp -p "$folder")
trap 'rm -f "$status"' EXIT
# Hypothesis would take an emulated example for a slow one. qemu ignores limits of memory.
proot -q qemu-aarch64-static -r "$folder/root" -b /etc/hosts -b /etc/passwd -b /etc/group -b /dev -b /proc -b /sys -b /tmp \
  -b "$folder" -b "$checkout" -w "$checkout" \
  /bin/bash -c '/usr/bin/python3 -m pytest "$@"; echo $? > "$0"' "$status" \
  -p no:cacheprovider --continue-on-collection-errors --hypothesis-profile=ci \
  -m 'not (gpu or soak or nightly or slow or ros)' \
  --deselect 'test/unit/test_child.py::test_memory_limit_ends_the_child[grow_within_limit]' "$@" || true
exit "$(cat "$status")"
