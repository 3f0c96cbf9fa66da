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
#include "points.cu"
#include "queries.cu"

// A kernel of so many threads per block; one a line, because cuda/kernels.py leaves out the lines of those
// that a pipeline does not launch. It writes a line per type T of outputs for each of KERNELS.
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

KERNELS(select_columns, 256, Head, select_columns<T>)
KERNELS(select_rows, 256, Head, select_rows<T>)
KERNELS(select_each, 256, Head, select_each<T>)
KERNELS(rank, 1024, Head, rank<T, Upright>)
KERNELS(filter, 256, Head, filter<T, Upright>)
KERNELS(rest, 1024, Head, rest<T, Upright>)
KERNELS(rank_rotated, 1024, Head, rank<T, Rotated>)
KERNELS(filter_rotated, 256, Head, filter<T, Rotated>)
KERNELS(rest_rotated, 1024, Head, rest<T, Rotated>)
KERNELS(reduce, 512, Head, reduce<T>)
KERNELS(find_logits, 256, Head, find_logits<T>)
KERNELS(select_rows_anchors, 256, Head, select_rows<Anchored<T>>)
KERNELS(select_each_anchors, 256, Head, select_each<Anchored<T>>)
KERNELS(rank_anchors, 1024, Head, rank<Anchored<T>, Upright>)
KERNELS(filter_anchors, 256, Head, filter<Anchored<T>, Upright>)
KERNELS(rest_anchors, 1024, Head, rest<Anchored<T>, Upright>)
KERNELS(reduce_anchors, 512, Head, reduce<Anchored<T>>)
KERNELS(summarise, 256, Dense, summarize<T>)
KERNELS(argmax, 256, Dense, argmax<T>)
KERNELS(interpolate, 256, Dense, interpolate<T>)
KERNELS(color, 256, Dense, color<T>)
KERNELS(paint, 256, Masks, paint<T>)
KERNELS(keep, 256, Masks, keep<T>)
KERNELS(keep_planes, 256, Masks, keep_planes<T>)
KERNELS(classify, 1024, Classes, classify<T>)
KERNELS(read_text, 1024, Classes, read_text<T>)
KERNELS(points, 256, Points, find_points<T>)
KERNELS(weigh_queries, 256, Queries, weigh_queries<T>)
KERNELS(sum_queries, 256, Queries, sum_queries<T>)
