// Decoding of network outputs to results in image pixels. Equals trt_ros/vision; test/gpu compares
// the two. All arithmetic is in float32, whatever the dtype of the outputs. Kernels whose names end in
// a dtype read outputs.
#include "common.cu"
#include "boxes.cu"
#include "select.cu"
#include "overlap.cu"
#include "tiles.cu"
#include "top.cu"
#include "emit.cu"
#include "rank.cu"
#include "nms.cu"
#include "dense.cu"
#include "masks.cu"
#include "classes.cu"

// A kernel of so many threads per block; one a line, because cuda/kernels.py leaves out the lines of those
// that a pipeline does not launch.
#define KERNEL(NAME, THREADS, ARGUMENT, ...)                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS)                                       \
  NAME(const __grid_constant__ ARGUMENT argument) { __VA_ARGS__(argument); }

KERNEL(cut, 1024, Head, cut_at_once)
KERNEL(narrow, 256, Head, narrow_bound)
KERNEL(gather, 256, Head, gather_best)
// Not only `mask`: ptxas of CUDA 13.0 crashes on a kernel of that name for sm_86 and sm_87.
KERNEL(mask_upright, 256, Head, mask<Upright>)
KERNEL(mask_rotated, 256, Head, mask<Rotated>)
KERNEL(select_tiles, 256, Tiles, select_tile)
KERNEL(finish, 1, Dense, finish_pixels)
KERNEL(finish_masks, 1, Masks, finish_instances)

KERNEL(select_columns_float32, 256, Head, select_columns<Float32>)
KERNEL(select_rows_float32, 256, Head, select_rows<Float32>)
KERNEL(select_each_float32, 256, Head, select_each<Float32>)
KERNEL(rank_float32, 1024, Head, rank<Float32, Upright>)
KERNEL(filter_float32, 256, Head, filter<Float32, Upright>)
KERNEL(rest_float32, 1024, Head, rest<Float32, Upright>)
KERNEL(rank_rotated_float32, 1024, Head, rank<Float32, Rotated>)
KERNEL(filter_rotated_float32, 256, Head, filter<Float32, Rotated>)
KERNEL(rest_rotated_float32, 1024, Head, rest<Float32, Rotated>)
KERNEL(reduce_float32, 512, Head, reduce<Float32>)
KERNEL(find_logits_float32, 256, Head, find_logits<Float32>)
KERNEL(select_rows_anchors_float32, 256, Head, select_rows<Anchored<Float32>>)
KERNEL(select_each_anchors_float32, 256, Head, select_each<Anchored<Float32>>)
KERNEL(rank_anchors_float32, 1024, Head, rank<Anchored<Float32>, Upright>)
KERNEL(filter_anchors_float32, 256, Head, filter<Anchored<Float32>, Upright>)
KERNEL(rest_anchors_float32, 1024, Head, rest<Anchored<Float32>, Upright>)
KERNEL(reduce_anchors_float32, 512, Head, reduce<Anchored<Float32>>)
KERNEL(summarise_float32, 256, Dense, summarize<Float32>)
KERNEL(argmax_float32, 256, Dense, argmax<Float32>)
KERNEL(interpolate_float32, 256, Dense, interpolate<Float32>)
KERNEL(paint_float32, 256, Masks, paint<Float32>)
KERNEL(keep_float32, 256, Masks, keep<Float32>)
KERNEL(classify_float32, 1024, Classes, classify<Float32>)

KERNEL(select_columns_float16, 256, Head, select_columns<Float16>)
KERNEL(select_rows_float16, 256, Head, select_rows<Float16>)
KERNEL(select_each_float16, 256, Head, select_each<Float16>)
KERNEL(rank_float16, 1024, Head, rank<Float16, Upright>)
KERNEL(filter_float16, 256, Head, filter<Float16, Upright>)
KERNEL(rest_float16, 1024, Head, rest<Float16, Upright>)
KERNEL(rank_rotated_float16, 1024, Head, rank<Float16, Rotated>)
KERNEL(filter_rotated_float16, 256, Head, filter<Float16, Rotated>)
KERNEL(rest_rotated_float16, 1024, Head, rest<Float16, Rotated>)
KERNEL(reduce_float16, 512, Head, reduce<Float16>)
KERNEL(find_logits_float16, 256, Head, find_logits<Float16>)
KERNEL(select_rows_anchors_float16, 256, Head, select_rows<Anchored<Float16>>)
KERNEL(select_each_anchors_float16, 256, Head, select_each<Anchored<Float16>>)
KERNEL(rank_anchors_float16, 1024, Head, rank<Anchored<Float16>, Upright>)
KERNEL(filter_anchors_float16, 256, Head, filter<Anchored<Float16>, Upright>)
KERNEL(rest_anchors_float16, 1024, Head, rest<Anchored<Float16>, Upright>)
KERNEL(reduce_anchors_float16, 512, Head, reduce<Anchored<Float16>>)
KERNEL(summarise_float16, 256, Dense, summarize<Float16>)
KERNEL(argmax_float16, 256, Dense, argmax<Float16>)
KERNEL(interpolate_float16, 256, Dense, interpolate<Float16>)
KERNEL(paint_float16, 256, Masks, paint<Float16>)
KERNEL(keep_float16, 256, Masks, keep<Float16>)
KERNEL(classify_float16, 1024, Classes, classify<Float16>)

KERNEL(select_columns_bfloat16, 256, Head, select_columns<Bfloat16>)
KERNEL(select_rows_bfloat16, 256, Head, select_rows<Bfloat16>)
KERNEL(select_each_bfloat16, 256, Head, select_each<Bfloat16>)
KERNEL(rank_bfloat16, 1024, Head, rank<Bfloat16, Upright>)
KERNEL(filter_bfloat16, 256, Head, filter<Bfloat16, Upright>)
KERNEL(rest_bfloat16, 1024, Head, rest<Bfloat16, Upright>)
KERNEL(rank_rotated_bfloat16, 1024, Head, rank<Bfloat16, Rotated>)
KERNEL(filter_rotated_bfloat16, 256, Head, filter<Bfloat16, Rotated>)
KERNEL(rest_rotated_bfloat16, 1024, Head, rest<Bfloat16, Rotated>)
KERNEL(reduce_bfloat16, 512, Head, reduce<Bfloat16>)
KERNEL(find_logits_bfloat16, 256, Head, find_logits<Bfloat16>)
KERNEL(select_rows_anchors_bfloat16, 256, Head, select_rows<Anchored<Bfloat16>>)
KERNEL(select_each_anchors_bfloat16, 256, Head, select_each<Anchored<Bfloat16>>)
KERNEL(rank_anchors_bfloat16, 1024, Head, rank<Anchored<Bfloat16>, Upright>)
KERNEL(filter_anchors_bfloat16, 256, Head, filter<Anchored<Bfloat16>, Upright>)
KERNEL(rest_anchors_bfloat16, 1024, Head, rest<Anchored<Bfloat16>, Upright>)
KERNEL(reduce_anchors_bfloat16, 512, Head, reduce<Anchored<Bfloat16>>)
KERNEL(summarise_bfloat16, 256, Dense, summarize<Bfloat16>)
KERNEL(argmax_bfloat16, 256, Dense, argmax<Bfloat16>)
KERNEL(interpolate_bfloat16, 256, Dense, interpolate<Bfloat16>)
KERNEL(paint_bfloat16, 256, Masks, paint<Bfloat16>)
KERNEL(keep_bfloat16, 256, Masks, keep<Bfloat16>)
KERNEL(classify_bfloat16, 1024, Classes, classify<Bfloat16>)
