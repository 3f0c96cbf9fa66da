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
  unsigned char* confidence;  // Likewise, one byte per pixel; may be null.
  float2* peaks;          // Of each cell the highest score, and the factor of exp(score - highest).
  int classes, cell_step, line_step, class_step;  // In elements.
  int grid_width, grid_height;
  int width, height, pitch, wide;  // pitch: pixels per line, a multiple of 4; wide: two bytes per label.
  int blends_rows, blends_columns;  // Whether any pixel lies between two cells.
  Axis rows, columns;
  float gain, offset;  // Of colors.
};

struct Tap {
  int first, second;
  float weight;  // Weight of `second`.
};

__device__ __forceinline__ Tap tap(const Axis& axis, int pixel) {
  const double place = axis.origin + pixel * axis.pitch;
  const double center = fmin(fmax(place, (double)axis.low), (double)axis.high);
  const int first = (int)floor(center);
  return {first, min(first + 1, axis.high), (float)(center - first)};
}

__device__ __forceinline__ float between(float a, float b, float weight) {
  return a + (b - a) * weight;
}

// Whether a pixel between four cells is in the mask, see vision/masks.py. NaN is outside, and no value is
// interpolated towards it.
__device__ __forceinline__ bool is_inside(
    float a, float b, float c, float d, float right, float below) {
  const int high = (a > 0.f) + (b > 0.f) + (c > 0.f) + (d > 0.f);
  if (high == 0 || high == 4) return high == 4;
  const float upper = between(a, b, right), lower = between(c, d, right);
  const float value = upper + (lower - upper) * below;
  return isnan(lower) ? upper > 0.f : value > 0.f;
}

// As vision/class_masks.py: finds out whether all scores are probabilities, and prepares the softmax of each
// cell for the other case. One thread per cell.
template <class T> __device__ __forceinline__ void summarize(const Dense& a) {
  const int cell = blockIdx.x * blockDim.x + threadIdx.x;
  bool is_outside = false;
  if (cell < a.grid_width * a.grid_height) {
    const size_t first = (size_t)(cell / a.grid_width) * a.line_step
        + (size_t)(cell % a.grid_width) * a.cell_step;
    float highest = -INFINITE, total = 0.f;
    for (int c = 0; c < a.classes; ++c) {
      const float score = T::at(a.cells, first + (size_t)c * a.class_step);
      is_outside |= score < 0.f || score > 1.001f;
      if (score > highest || isnan(score)) highest = score;
    }
    for (int c = 0; c < a.classes; ++c) {
      total += expf(T::at(a.cells, first + (size_t)c * a.class_step) - highest);
    }
    a.peaks[cell] = {highest, 1.f / total};
  }
  const unsigned any = __ballot_sync(EVERY, is_outside);
  if (any && (threadIdx.x & 31) == 0) atomicOr(&a.counters->are_logits, 1);
}

template <class T> __device__ __forceinline__ float score_at(
    const Dense& a, int line, int cell, int label) {
  return T::at(a.cells, (size_t)line * a.line_step + (size_t)cell * a.cell_step
                            + (size_t)label * a.class_step);
}

// The probability of a class at a cell.
template <class T> __device__ __forceinline__ float probability_at(
    const Dense& a, int line, int cell, int label, bool are_logits) {
  const float score = score_at<T>(a, line, cell, label);
  if (!are_logits || a.classes == 1) return score;
  const float2 peak = a.peaks[(size_t)line * a.grid_width + cell];
  return expf(score - peak.x) * peak.y;
}

// The probability of a pixel's class, 0 to 255; 0 where it is not finite. Where no pixel of an axis lies
// between two cells, the second one is not read, as in vision/grid.py.
template <class T> __device__ __forceinline__ unsigned char confidence_at(
    const Dense& a, const Tap& row, const Tap& column, int label, bool are_logits) {
  const int c = a.classes == 1 ? 0 : label;
  float value = probability_at<T>(a, row.first, column.first, c, are_logits);
  if (a.blends_columns) {
    value = between(value, probability_at<T>(a, row.first, column.second, c, are_logits), column.weight);
  }
  if (a.blends_rows) {
    float below = probability_at<T>(a, row.second, column.first, c, are_logits);
    if (a.blends_columns) {
      below = between(below, probability_at<T>(a, row.second, column.second, c, are_logits),
                      column.weight);
    }
    value = between(value, below, row.weight);
  }
  if (a.classes == 1) {
    if (are_logits) value = 1.f / (1.f + expf(-value));
    if (value < 0.5f) value = 1.f - value;
  }
  return (unsigned char)fminf(fmaxf(value * 255.f + 0.5f, 0.f), 255.f);
}

// Whether a pixel is in the mask of an only class.
template <class T> __device__ __forceinline__ int is_in_mask(
    const Dense& a, const Tap& row, const Tap& column, bool are_logits) {
  const float bar = are_logits ? 0.f : 0.5f;
  return is_inside(score_at<T>(a, row.first, column.first, 0) - bar,
                   score_at<T>(a, row.first, column.second, 0) - bar,
                   score_at<T>(a, row.second, column.first, 0) - bar,
                   score_at<T>(a, row.second, column.second, 0) - bar, column.weight, row.weight);
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
    const bool are_logits = a.counters->are_logits;
    if (a.classes == 1) {
#pragma unroll
      for (int i = 0; i < PIXELS; ++i) labels[i] = is_in_mask<T>(a, row, columns[i], are_logits);
    }
    const size_t place = (size_t)y * a.pitch + x;
    if (a.confidence) {
      unsigned char scores[PIXELS];
#pragma unroll
      for (int i = 0; i < PIXELS; ++i) {
        scores[i] = confidence_at<T>(a, row, columns[i], labels[i], are_logits);
      }
      ((uchar4*)a.confidence)[place / PIXELS] = make_uchar4(scores[0], scores[1], scores[2], scores[3]);
    }
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

// As families/image.py: three values per pixel as uint8, in rows of `pitch` pixels.
template <class T> __device__ __forceinline__ void color(const Dense& a) {
  const int x = (blockIdx.x * blockDim.x + threadIdx.x) * PIXELS;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  int bad = 0;
  if (x < a.width && y < a.height) {
    const Tap row = tap(a.rows, y);
    const size_t upper = (size_t)row.first * a.line_step, lower = (size_t)row.second * a.line_step;
    unsigned char bytes[3 * PIXELS];
#pragma unroll
    for (int i = 0; i < PIXELS; ++i) {
      const Tap column = tap(a.columns, min(x + i, a.width - 1));
      const size_t left = (size_t)column.first * a.cell_step;
      const size_t right = (size_t)column.second * a.cell_step;
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        const size_t plane = (size_t)c * a.class_step;
        float value = T::at(a.cells, plane + upper + left);
        if (a.blends_columns) {
          value = between(value, T::at(a.cells, plane + upper + right), column.weight);
        }
        if (a.blends_rows) {
          float below = T::at(a.cells, plane + lower + left);
          if (a.blends_columns) {
            below = between(below, T::at(a.cells, plane + lower + right), column.weight);
          }
          value = between(value, below, row.weight);
        }
        bad |= !is_finite(value);
        value = value * a.gain;
        bytes[3 * i + c] = (unsigned char)fminf(fmaxf(value + a.offset, 0.f), 255.f);
      }
    }
    uchar4* out = (uchar4*)a.pixels + ((size_t)y * a.pitch + x) / PIXELS * 3;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      out[i] = make_uchar4(bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]);
    }
  }
  const unsigned any = __ballot_sync(EVERY, bad);
  if (any && threadIdx.x == 0) atomicAdd(&a.counters->nonfinite, __popc(any));
}

// One thread, launched after `argmax_*` or `interpolate_*`.
__device__ __forceinline__ void finish_pixels(const Dense& a) {
  *a.result = {0, 0, a.counters->nonfinite, 0};
  *a.counters = {0, 0};
}
