// Keypoints: of the one object that the input shows, or of lanes. A warp finds a keypoint; the block that
// finishes last scores the objects and writes the result of boxes.cu's form, with keypoints as extras.

// VALUES, BINS, HEATMAPS as in families/layout.py; the others are lanes, see families/lanes.py, ufld_v2.py and
// lstr.py: the mean of all cells of a row; that of the best cell and its neighbors; points of curves.
enum PointForm { VALUES, BINS, HEATMAPS, ROW_CELLS, BEST_CELLS, CURVES };

const int OBJECTS_MAX = 32, PLACES_MAX = 128;
const int RADIUS = 5;  // Of the smoothing of heatmaps.

struct Points {
  const void* outputs[4];   // By form, in the order of the family's outputs; may be null.
  const Request* request;
  unsigned char* result;    // Host memory that the GPU can write.
  Counters* counters;
  float* found;             // Scratch: x, y in image pixels and visibility of each keypoint of each object.
  int form, objects, points;
  int is_y_first, has_labels;  // has_labels: the class of an object is its place; else 0.
  int values;               // Of VALUES, per keypoint: 3, or 2 of visible ones.
  int sizes[2];             // Bins, cells or parameters along x and y, or of each kind of lanes.
  int counts[2], least[2];  // Keypoints of each kind of lanes; fewer than `least` visible ones are no lane.
  double steps[2];          // Input pixels per value, bin or cell, along x and y.
  double weights[2 * RADIUS + 1];  // Of the smoothing.
  float places[2][PLACES_MAX];     // Of keypoints across the direction in which they are found.
  float top;                // Of the uncropped image, in input pixels.
  float box[4];             // The input in image pixels.
  float scale_x, scale_y, pad_x, pad_y;
  int image_width, image_height;
};

__device__ __forceinline__ bool is_one(const Points& p) { return p.form <= HEATMAPS; }

// Best value of a warp, the first among equals.
struct Peak { float value; int index; };
__device__ __forceinline__ Peak best_of(Peak mine) {
  for (int apart = 16; apart; apart /= 2) {
    const float value = __shfl_xor_sync(EVERY, mine.value, apart);
    const int index = __shfl_xor_sync(EVERY, mine.index, apart);
    if (value > mine.value || (value == mine.value && index < mine.index)) mine = {value, index};
  }
  return mine;
}
template <class V> __device__ __forceinline__ V total_of(V mine) {
  for (int apart = 16; apart; apart /= 2) mine += __shfl_xor_sync(EVERY, mine, apart);
  return mine;
}

// The first of the highest values first + i * step, where those that are not finite count 0.
template <class T> __device__ __forceinline__ Peak highest_value(
    const void* values, size_t first, int count, size_t step, int& bad) {
  Peak best = {-INFINITE, 0};
  for (int i = threadIdx.x & 31; i < count; i += 32) {
    float value = T::at(values, first + i * step);
    if (!is_finite(value)) {
      ++bad;
      value = 0.f;
    }
    if (value > best.value) best = {value, i};
  }
  return best_of(best);
}

struct Point { float x, y, seen; };  // In input pixels.

template <class T> __device__ __forceinline__ Point from_values(const Points& p, int k, int& bad) {
  float value[3] = {0.f, 0.f, 1.f};
  for (int i = 0; i < p.values; ++i) {
    value[i] = T::at(p.outputs[0], p.values * k + i);
    bad += !is_finite(value[i]) && (threadIdx.x & 31) == i;
  }
  if (p.outputs[1]) value[2] = T::at(p.outputs[1], 0);
  bad += p.outputs[1] && k == 0 && (threadIdx.x & 31) == 3 && !is_finite(value[2]);
  return {value[p.is_y_first] * (float)p.steps[0], value[1 - p.is_y_first] * (float)p.steps[1], value[2]};
}

template <class T> __device__ __forceinline__ Point from_bins(const Points& p, int k, int& bad) {
  const Peak x = highest_value<T>(p.outputs[0], (size_t)k * p.sizes[0], p.sizes[0], 1, bad);
  const Peak y = highest_value<T>(p.outputs[1], (size_t)k * p.sizes[1], p.sizes[1], 1, bad);
  return {(float)(x.index * p.steps[0] + 0.5), (float)(y.index * p.steps[1] + 0.5),
          fminf(fmaxf(fminf(x.value, y.value), 0.f), 1.f)};
}

// A cell of an axis that is mirrored at its ends.
__device__ __forceinline__ int mirrored(int cell, int size) {
  cell = (cell % (2 * size) + 2 * size) % (2 * size);
  return min(cell, 2 * size - 1 - cell);
}

// As decode/points.py: the step from the highest cell to the maximum of the logarithm of the smoothed map.
template <class T> __device__ __noinline__ Point from_heatmap(const Points& p, int k, int& bad) {
  const int wide = p.sizes[0], tall = p.sizes[1], lane = threadIdx.x & 31, width = 2 * RADIUS + 1;
  const size_t plane = (size_t)k * wide * tall;
  const Peak best = highest_value<T>(p.outputs[0], plane, wide * tall, 1, bad);
  const int row = best.index / wide, column = best.index % wide;
  double z[3][3];
  for (int i = 0; i < 9; ++i) {
    const int y = min(max(row + i / 3 - 1, 0), tall - 1), x = min(max(column + i % 3 - 1, 0), wide - 1);
    double sum = 0.;
    for (int tap = lane; tap < width * width; tap += 32) {
      const int line = mirrored(y + tap / width - RADIUS, tall), cell = mirrored(x + tap % width - RADIUS, wide);
      const float value = T::at(p.outputs[0], plane + (size_t)line * wide + cell);
      if (is_finite(value)) sum += (double)value * p.weights[tap / width] * p.weights[tap % width];
    }
    z[i / 3][i % 3] = log(fmin(fmax(total_of(sum), 1e-3), 50.));
  }
  const double slope_y = (z[2][1] - z[0][1]) / 2., slope_x = (z[1][2] - z[1][0]) / 2.;
  const double bend_y = z[2][1] - 2. * z[1][1] + z[0][1], bend_x = z[1][2] - 2. * z[1][1] + z[1][0];
  const double twist = (z[2][2] - z[0][2] - z[2][0] + z[0][0]) / 4.;
  const double determinant = bend_y * bend_x - twist * twist;
  double x = column, y = row;
  if (determinant > 1e-9 && bend_y < 0.) {
    x += fmin(fmax((twist * slope_y - bend_y * slope_x) / determinant, -1.), 1.);
    y += fmin(fmax((twist * slope_x - bend_x * slope_y) / determinant, -1.), 1.);
  }
  return {(float)(x * p.steps[0] + 0.5), (float)(y * p.steps[1] + 0.5), fminf(fmaxf(best.value, 0.f), 1.f)};
}

// The best of logits first + i * step and whether any of them is NaN or +Inf, or all are -Inf.
template <class T> __device__ __forceinline__ Peak best_logit(
    const void* logits, size_t first, int count, size_t step, bool& is_spoiled, int& bad) {
  Peak best = {-INFINITE, 0};
  bool spoiled = false;
  for (int i = threadIdx.x & 31; i < count; i += 32) {
    const float value = T::at(logits, first + i * step);
    bad += !is_finite(value);
    spoiled |= !(value <= LARGEST);
    if (value > best.value) best = {value, i};
  }
  best = best_of(best);
  is_spoiled = __any_sync(EVERY, spoiled) || !is_finite(best.value);
  return best;
}

// Of logits (cells + 1, rows, lanes), the last one of "no lane".
template <class T> __device__ __forceinline__ Point from_row_cells(const Points& p, int lane, int k, int& bad) {
  const int cells = p.sizes[0];
  const size_t first = (size_t)k * p.objects + lane, step = (size_t)p.points * p.objects;
  bool is_spoiled;
  const Peak best = best_logit<T>(p.outputs[0], first, cells + 1, step, is_spoiled, bad);
  float sum = 0.f, mean = 0.f;
  for (int i = threadIdx.x & 31; i < cells; i += 32) {
    const float power = expf(T::at(p.outputs[0], first + i * step) - best.value);
    sum += power;
    mean += power * (i + 0.5f);
  }
  sum = total_of(sum);
  mean = total_of(mean) / sum;
  const float none = expf(T::at(p.outputs[0], first + cells * step) - best.value);
  const bool is_seen = !is_spoiled && best.index < cells;
  return {mean * (float)p.steps[0], p.places[0][k], is_seen ? 1.f - none / (sum + none) : 0.f};
}

// Of logits (cells, points, 4) and those of (no point, point); the middle lanes have a point per row, the
// outer ones one per column.
template <class T> __device__ __forceinline__ Point from_best_cells(const Points& p, int lane, int k, int& bad) {
  const int kind = lane == 0 || lane == 3, cells = p.sizes[kind], count = p.counts[kind];
  if (k >= count) return {INFINITE, INFINITE, 0.f};
  const size_t first = (size_t)k * 4 + lane, step = (size_t)count * 4;
  bool is_spoiled;
  const Peak best = best_logit<T>(p.outputs[kind], first, cells, step, is_spoiled, bad);
  float sum = 0.f, mean = 0.f;
  for (int i = max(best.index - 1, 0); i <= min(best.index + 1, cells - 1); ++i) {
    const float power = expf(T::at(p.outputs[kind], first + i * step) - best.value);
    sum += power;
    mean += power * i;
  }
  const float place = is_spoiled ? INFINITE : (mean / sum + 0.5f) * (float)p.steps[kind];
  const Peak other = best_logit<T>(p.outputs[2 + kind], first, 2, step, is_spoiled, bad);
  const float worse = expf(T::at(p.outputs[2 + kind], first + (1 - other.index) * step) - other.value);
  const float seen = is_spoiled || other.index == 0 ? 0.f : 1.f / (1.f + worse);
  return {kind ? p.places[1][k] : place, (kind ? place : p.places[0][k]) + p.top, seen};
}

// Of logits (lanes, 2 or 3), the second one of a lane, and curves (lanes, 8).
template <class T> __device__ __forceinline__ Point from_curve(const Points& p, int lane, int k, int& bad) {
  bool is_spoiled;
  int wrong = 0;
  const int kinds = p.sizes[0];
  const Peak best = best_logit<T>(p.outputs[0], (size_t)lane * kinds, kinds, 1, is_spoiled, wrong);
  float sum = 0.f, v[8];
  for (int i = 0; i < kinds; ++i) sum += expf(T::at(p.outputs[0], lane * kinds + i) - best.value);
  for (int i = 0; i < 8; ++i) {
    v[i] = T::at(p.outputs[1], lane * 8 + i);
    wrong += (threadIdx.x & 31) == 0 && !is_finite(v[i]);
  }
  if (k == 0) bad += wrong;
  const float y = v[0] + (v[1] - v[0]) * p.places[0][k], down = y - v[3];
  const float x = v[2] / (down * down) + v[4] / down + v[5] + v[6] * y - v[7];
  const bool is_inside = x >= 0.f && x <= 1.f && y >= 0.f && y <= 1.f;
  const float seen = is_inside && !is_spoiled && best.index == 1 ? 1.f / sum : 0.f;
  return {is_inside ? x * (float)p.steps[0] : 0.f, is_inside ? y * (float)p.steps[1] : 0.f, seen};
}

// Whether a request lets an only object pass: only by its class, if it chooses any.
__device__ __forceinline__ bool chooses_classes(const Points& p) {
  return p.request->table_size || p.request->class_agnostic;
}

// Scores the objects, and writes those that pass, best first; one block.
template <class T> __device__ __noinline__ void emit_objects(const Points& p) {
  __shared__ float scores[OBJECTS_MAX], boxes[OBJECTS_MAX][4];
  __shared__ int labels[OBJECTS_MAX], passes[OBJECTS_MAX], places[OBJECTS_MAX];
  const int lane = threadIdx.x & 31, warps = blockDim.x / 32;
  float4* out_boxes = (float4*)(p.result + sizeof(Result));
  float* out_scores = (float*)(out_boxes + p.objects);
  int* out_labels = (int*)(out_scores + p.objects);
  float* out_points = (float*)(out_labels + p.objects);
  const int limit = is_one(p) && !chooses_classes(p) ? 1 : max(p.request->max_detections, 0);
  for (int o = threadIdx.x / 32; o < p.objects; o += warps) {
    float sum = 0.f, low[2] = {INFINITE, INFINITE}, high[2] = {-INFINITE, -INFINITE};
    int seen = 0;
    for (int k = lane; k < p.points; k += 32) {
      const float* point = p.found + 3 * (o * p.points + k);
      const float visibility = __ldcg(point + 2);
      sum += visibility;
      if (!(visibility > 0.f)) continue;
      ++seen;
      for (int axis = 0; axis < 2; ++axis) {
        low[axis] = fminf(low[axis], __ldcg(point + axis));
        high[axis] = fmaxf(high[axis], __ldcg(point + axis));
      }
    }
    sum = total_of(sum);
    seen = total_of(seen);
    for (int axis = 0; axis < 2; ++axis) {
      for (int apart = 16; apart; apart /= 2) {
        low[axis] = fminf(low[axis], __shfl_xor_sync(EVERY, low[axis], apart));
        high[axis] = fmaxf(high[axis], __shfl_xor_sync(EVERY, high[axis], apart));
      }
    }
    if (lane) continue;
    const float sizes[2] = {(float)p.image_width, (float)p.image_height};
    for (int axis = 0; axis < 2; ++axis) {
      boxes[o][axis] = is_one(p) ? p.box[axis] : fminf(fmaxf(low[axis], 0.f), sizes[axis]);
      boxes[o][2 + axis] = is_one(p) ? p.box[2 + axis] : fminf(fmaxf(high[axis], 0.f), sizes[axis]);
    }
    labels[o] = p.has_labels ? o : 0;
    const int kind = p.form == BEST_CELLS && (o == 0 || o == 3);
    bool pass = seen >= p.least[kind];
    float score = sum / max(seen, 1);
    if (is_one(p)) {
      score = sum / p.points;
      if (p.form == VALUES && p.outputs[1]) {
        score = T::at(p.outputs[1], 0);
        if (!is_finite(score)) score = 0.f;
      }
      if (p.form == VALUES && p.outputs[2]) labels[o] = T::at(p.outputs[2], 0) >= 0.5f;
      pass = !chooses_classes(p) || score >= min_score(p.request, labels[o]);
    } else {
      pass &= score >= min_score(p.request, labels[o]);
    }
    scores[o] = score;
    passes[o] = pass;
  }
  __syncthreads();
  int passed = 0, kept = 0;
  for (int o = 0; o < p.objects; ++o) passed += passes[o];
  kept = min(passed, limit);
  if (threadIdx.x < p.objects) {
    const int o = threadIdx.x;
    int place = passes[o] ? 0 : OBJECTS_MAX;
    for (int other = 0; other < p.objects; ++other) {
      place += passes[other] && (scores[other] > scores[o] || (scores[other] == scores[o] && other < o));
    }
    places[o] = place;
    if (place < kept) {
      out_boxes[place] = make_float4(boxes[o][0], boxes[o][1], boxes[o][2], boxes[o][3]);
      out_scores[place] = scores[o];
      out_labels[place] = labels[o];
    }
  }
  __syncthreads();
  const int width = 3 * p.points;
  for (int i = threadIdx.x; i < p.objects * width; i += blockDim.x) {
    const int place = places[i / width];
    if (place < kept) out_points[place * width + i % width] = __ldcg(p.found + i);
  }
  if (threadIdx.x == 0) {
    *(Result*)p.result = {kept, passed, p.counters->nonfinite, 0};
    *p.counters = {};
  }
}

// Blocks of 256 threads, a warp per keypoint.
template <class T> __device__ __forceinline__ void find_points(const Points& p) {
  __shared__ int is_last;
  const int index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (index < p.objects * p.points) {
    const int o = index / p.points, k = index % p.points;
    int bad = 0;
    const Point found = p.form == VALUES ? from_values<T>(p, k, bad)
        : p.form == BINS ? from_bins<T>(p, k, bad)
        : p.form == HEATMAPS ? from_heatmap<T>(p, k, bad)
        : p.form == ROW_CELLS ? from_row_cells<T>(p, o, k, bad)
        : p.form == BEST_CELLS ? from_best_cells<T>(p, o, k, bad) : from_curve<T>(p, o, k, bad);
    bad = total_of(bad);
    if ((threadIdx.x & 31) == 0) {
      const float x = (found.x - p.pad_x) / p.scale_x, y = (found.y - p.pad_y) / p.scale_y;
      const bool is_valid = is_finite(x) && is_finite(y) && is_finite(found.seen);
      float* target = p.found + 3 * index;
      target[0] = is_valid ? x : 0.f;  // Not visible.
      target[1] = is_valid ? y : 0.f;
      target[2] = is_valid ? found.seen : 0.f;
      if (bad) atomicAdd(&p.counters->nonfinite, bad);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&p.counters->blocks, 1) == (int)gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  emit_objects<T>(p);
}
