// Cell coordinates of pixels along one axis: pixel i is at origin + i * pitch, clamped to `low` and
// `high`. In double precision, as NumPy computes it.
struct Axis {
  double origin, pitch;
  int low, high;
};

struct Dense {
  const void* cells;      // Scores or depths.
  Counters* counters;
  Result* result;         // Host memory that the GPU can write; `count` stays 0.
  void* pixels;           // Host memory, likewise: (height, pitch) labels of one or two bytes, or depths.
  int classes, cell_step, line_step, class_step;  // In elements.
  int width, height, pitch, wide;  // pitch: pixels per line, a multiple of 4; wide: two bytes per label.
  int blends_rows, blends_columns;  // Whether any pixel lies between two cells.
  Axis rows, columns;
};

struct Tap {
  int first, second;
  float weight;  // Weight of `second`.
};

__device__ __forceinline__ Tap tap(const Axis& axis, int pixel) {
  const double place = axis.origin + pixel * axis.pitch;
  const double centre = fmin(fmax(place, (double)axis.low), (double)axis.high);
  const int first = (int)floor(centre);
  return {first, min(first + 1, axis.high), (float)(centre - first)};
}

__device__ __forceinline__ float between(float a, float b, float weight) {
  return a + (b - a) * weight;
}

const int PIXELS = 4;  // Adjacent pixels per thread, so that the writes of a warp coalesce.

template <class T> __device__ __forceinline__ void argmax(const Dense& a) {
  const int x = (blockIdx.x * blockDim.x + threadIdx.x) * PIXELS;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  bool bad = false;
  if (x < a.width && y < a.height) {
    const Tap row = tap(a.rows, y);
    const size_t upper = (size_t)row.first * a.line_step, lower = (size_t)row.second * a.line_step;
    Tap columns[PIXELS];
    float best[PIXELS];
    int labels[PIXELS];
#pragma unroll
    for (int i = 0; i < PIXELS; ++i) columns[i] = tap(a.columns, min(x + i, a.width - 1));
    for (int c = 0; c < a.classes; ++c) {
      const size_t plane = (size_t)c * a.class_step;
#pragma unroll
      for (int i = 0; i < PIXELS; ++i) {
        const size_t left = plane + (size_t)columns[i].first * a.cell_step;
        const size_t right = plane + (size_t)columns[i].second * a.cell_step;
        const float above = between(T::at(a.cells, upper + left), T::at(a.cells, upper + right),
                                    columns[i].weight);
        const float below = between(T::at(a.cells, lower + left), T::at(a.cells, lower + right),
                                    columns[i].weight);
        const float score = between(above, below, row.weight);
        bad |= !is_finite(score);
        if (c == 0 || score > best[i]) {
          best[i] = score;
          labels[i] = c;
        }
      }
    }
    const size_t place = (size_t)y * a.pitch + x;
    if (a.wide) {
      ((ushort4*)a.pixels)[place / PIXELS] = make_ushort4(labels[0], labels[1], labels[2], labels[3]);
    } else {
      ((uchar4*)a.pixels)[place / PIXELS] = make_uchar4(labels[0], labels[1], labels[2], labels[3]);
    }
  }
  const unsigned any = __ballot_sync(EVERY, bad);
  if (any && threadIdx.x == 0) atomicAdd(&a.counters->nonfinite, __popc(any));
}

// As vision/grid.py: where no pixel of an axis lies between two cells, it does not read the second one,
// so that this one's NaN does not spread.
template <class T> __device__ __forceinline__ void interpolate(const Dense& a) {
  const int x = (blockIdx.x * blockDim.x + threadIdx.x) * PIXELS;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  int bad = 0;
  if (x < a.width && y < a.height) {
    const Tap row = tap(a.rows, y);
    const size_t upper = (size_t)row.first * a.line_step, lower = (size_t)row.second * a.line_step;
    float values[PIXELS];
#pragma unroll
    for (int i = 0; i < PIXELS; ++i) {
      const Tap column = tap(a.columns, min(x + i, a.width - 1));
      const size_t left = (size_t)column.first * a.cell_step;
      const size_t right = (size_t)column.second * a.cell_step;
      float value = T::at(a.cells, upper + left);
      if (a.blends_columns) value = between(value, T::at(a.cells, upper + right), column.weight);
      if (a.blends_rows) {
        float below = T::at(a.cells, lower + left);
        if (a.blends_columns) below = between(below, T::at(a.cells, lower + right), column.weight);
        value = between(value, below, row.weight);
      }
      values[i] = value;
      bad |= !is_finite(value);
    }
    ((float4*)a.pixels)[((size_t)y * a.pitch + x) / PIXELS] =
        make_float4(values[0], values[1], values[2], values[3]);
  }
  const unsigned any = __ballot_sync(EVERY, bad);
  if (any && threadIdx.x == 0) atomicAdd(&a.counters->nonfinite, __popc(any));
}

// One thread, launched after `argmax_*` or `interpolate_*`.
__device__ __forceinline__ void finish_pixels(const Dense& a) {
  *a.result = {0, 0, a.counters->nonfinite, 0};
  *a.counters = {0, 0};
}
