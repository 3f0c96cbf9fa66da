// Decoding of network outputs to results in image pixels. Equals trt_ros/vision; test/gpu compares
// the two. All arithmetic is in float32, whatever the dtype of the outputs. Kernels whose names end in
// a dtype read outputs.
#include "common.cu"
#include "boxes.cu"
#include "overlap.cu"
#include "top.cu"
#include "emit.cu"
#include "nms.cu"
#include "dense.cu"
#include "masks.cu"
#include "classes.cu"

#define BOX_KERNELS(DTYPE, T, SUFFIX, SHAPE)                                                  \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  rank##SUFFIX##_##DTYPE(const __grid_constant__ Head h) { rank<T, SHAPE>(h); }               \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  filter##SUFFIX##_##DTYPE(const __grid_constant__ Head h) { filter<T, SHAPE>(h); }           \
  extern "C" __global__ void __launch_bounds__(1024)                                          \
  rest##SUFFIX##_##DTYPE(const __grid_constant__ Head h) { rest<T, SHAPE>(h); }

#define KERNELS(DTYPE, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  select_columns_##DTYPE(const __grid_constant__ Head h) { select_columns<T>(h); }            \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  select_rows_##DTYPE(const __grid_constant__ Head h) { select_rows<T>(h); }                  \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  select_each_##DTYPE(const __grid_constant__ Head h) { select_each<T>(h); }                  \
  extern "C" __global__ void __launch_bounds__(1024)                                          \
  reduce_##DTYPE(const __grid_constant__ Head h) { reduce<T>(h); }                            \
  BOX_KERNELS(DTYPE, T, , Upright)                                                            \
  BOX_KERNELS(DTYPE, T, _rotated, Rotated)                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  argmax_##DTYPE(const __grid_constant__ Dense a) { argmax<T>(a); }                             \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  interpolate_##DTYPE(const __grid_constant__ Dense a) { interpolate<T>(a); }                   \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  paint_##DTYPE(const __grid_constant__ Masks m) { paint<T>(m); }                             \
  extern "C" __global__ void __launch_bounds__(256)                                           \
  keep_##DTYPE(const __grid_constant__ Masks m) { keep<T>(m); }                               \
  extern "C" __global__ void __launch_bounds__(1024)                                          \
  classify_##DTYPE(const __grid_constant__ Classes c) { classify<T>(c); }

// Not only `mask`: ptxas of CUDA 13.0 crashes on a kernel of that name for sm_86 and sm_87.
extern "C" __global__ void __launch_bounds__(256)
mask_upright(const __grid_constant__ Head h) { mask<Upright>(h); }
extern "C" __global__ void __launch_bounds__(256)
mask_rotated(const __grid_constant__ Head h) { mask<Rotated>(h); }
KERNELS(float32, Float32)
KERNELS(float16, Float16)
KERNELS(bfloat16, Bfloat16)
