// Candidates of boxes: `select_*` collects those above the score threshold.

// x1 y1 x2 y2; cx cy w h; YOLOX's offsets on a grid; cx cy w h and an angle, the first of the extras.
enum Form { CORNERS, CENTERS, GRID, ROTATED };
enum Activation { NONE, SIGMOID, SOFTMAX };  // Softmax: one more entry than classes.
// Meaning of the extras: an angle; x, y and maybe visibility per keypoint; coefficients of a mask.
enum Extras { NO_EXTRAS, ANGLE, KEYPOINTS_2, KEYPOINTS_3, COEFFICIENTS };
enum Kind { ABSENT, INT32, INT64, SCORES };  // SCORES: the dtype of the scores.

// A kept object with a mask: the pixels of its box, its row and its class.
struct Instance { int x1, y1, x2, y2, row, label; };

// Box element k of row r is boxes[r * box_row + k * box_column], likewise the scores.
struct Head {
  const void *boxes, *scores;
  const void *objectness;  // Factor of a row's scores, spaced as the rows of `scores`; may be null.
  const void *labels;      // One class per row, where the network outputs classes; may be null.
  const void *count;       // Number of valid rows; may be null, for all.
  const Request* request;  // In device memory, or in mapped host memory.
  const void* extras;      // Further values of a row, spaced as its box; may be null.
  unsigned char* result;   // Host memory that the GPU can write.
  Counters* counters;
  // Scratch: one key per candidate; the best TOP keys; both unsorted. Then in order of the score:
  // keys, boxes in input pixels, and covariances of rotated boxes. Places in this order of the boxes
  // kept, best first.
  u64 *keys, *top, *sorted;
  float4 *boxes_sorted, *shapes_sorted;
  int* kept;
  Instance* instances;     // With coefficients of masks: the kept objects.
  u64* mask;               // (pitch * 64, pitch): bit b of word w of row r, see `mask_*`.
  unsigned* histogram;     // DIGITS counts, zero between frames.
  int pitch, shift;        // Of `mask`, in words; of the digits that one launch of `narrow` looks at.
  int capacity;            // Boxes that fit into the result.
  int places;              // Candidates at most.
  int rows, classes;
  int box_row, box_column, score_row, score_column, label_row, label_kind, count_kind;
  int extra_count, extra_kind;
  int form, activation, background, uses_nms;  // background: classes before the first one.
  float box_width, box_height;  // Input size where boxes are normalized to 0 to 1; 1 where they are in pixels.
  int input_width, input_height, levels, strides[4];  // YOLOX's grid.
  float scale_x, scale_y, scale_area, pad_x, pad_y;   // input = image * scale + pad; both scales multiplied
  int has_one_scale;                                  // Whether both are equal.
  int image_width, image_height;
};

// Sorts by score, then by lower place: row * classes + class. Keys are unique, so that the order never
// depends on scheduling.
__device__ __forceinline__ u64 key_of(float score, unsigned place) {
  return ((u64)__float_as_uint(score + 0.f) << 32) | (u64)~place;
}
__device__ __forceinline__ float score_of(u64 key) { return __uint_as_float((unsigned)(key >> 32)); }
__device__ __forceinline__ int row_of(const Head& h, u64 key) {
  return (int)(~(unsigned)key / (unsigned)h.classes);
}
// The class among those of one row.
__device__ __forceinline__ int class_of(const Head& h, u64 key) {
  return (int)(~(unsigned)key % (unsigned)h.classes);
}

// Whether boxes suppress each other, maybe only because the request asks for it.
__device__ __forceinline__ bool suppresses(const Head& h) {
  return h.uses_nms || h.request->class_agnostic;
}
// Boxes suppress those of their own group, which are a class each, or one of all classes.
__device__ __forceinline__ unsigned group_count(const Head& h) {
  return h.request->class_agnostic ? 1u : (unsigned)h.classes;
}
__device__ __forceinline__ int group_of(u64 key, unsigned groups) {
  return (int)(~(unsigned)key % groups);
}

struct __align__(16) Box { float x1, y1, x2, y2; };  // Or cx, cy, w, h where rotated.

template <class T> __device__ __forceinline__ Box box_of(const Head& h, int row) {
  const size_t base = (size_t)row * h.box_row, step = h.box_column;
  float x = T::at(h.boxes, base), y = T::at(h.boxes, base + step);
  float w = T::at(h.boxes, base + 2 * step), t = T::at(h.boxes, base + 3 * step);
  if (h.form == GRID) {
    int in_level = row;
    for (int level = 0; level < h.levels; ++level) {
      const int stride = h.strides[level];
      const int across = h.input_width / stride, cells = across * (h.input_height / stride);
      if (in_level < cells) {
        x = (x + in_level % across) * stride;
        y = (y + in_level / across) * stride;
        w = expf(w) * stride;
        t = expf(t) * stride;
        break;
      }
      in_level -= cells;
    }
  }
  if (h.form == ROTATED) return {x, y, w, t};
  if (h.form == CORNERS) {
    return {x * h.box_width, y * h.box_height, w * h.box_width, t * h.box_height};
  }
  const float half_w = w / 2.f, half_h = t / 2.f;
  return {(x - half_w) * h.box_width, (y - half_h) * h.box_height,
          (x + half_w) * h.box_width, (y + half_h) * h.box_height};
}

template <class T> __device__ __forceinline__ float extra_of(const Head& h, int row, int k) {
  return T::at(h.extras, (size_t)row * h.box_row + (size_t)k * h.box_column);
}

template <class T> __device__ __forceinline__ bool box_is_finite(const Head& h, int row, int k) {
  return is_finite(T::at(h.boxes, (size_t)row * h.box_row + (size_t)k * h.box_column));
}

__device__ __forceinline__ int integer_at(const void* values, int kind, size_t i) {
  return kind == INT64 ? (int)__ldg((const long long*)values + i) : __ldg((const int*)values + i);
}

// The class of a row from `labels`; negative where invalid.
template <class T> __device__ __forceinline__ int label_at(const Head& h, int row) {
  const size_t i = (size_t)row * h.label_row;
  if (h.label_kind != SCORES) return integer_at(h.labels, h.label_kind, i);
  const float label = T::at(h.labels, i);
  return label >= 0.f && is_finite(label) ? (int)label : -1;
}

// Maps a box from network input to image pixels and clips it to the image.
__device__ __forceinline__ Box in_image(const Head& h, const Box& b) {
  const float wide = (float)h.image_width, tall = (float)h.image_height;
  return {fminf(fmaxf((b.x1 - h.pad_x) / h.scale_x, 0.f), wide),
          fminf(fmaxf((b.y1 - h.pad_y) / h.scale_y, 0.f), tall),
          fminf(fmaxf((b.x2 - h.pad_x) / h.scale_x, 0.f), wide),
          fminf(fmaxf((b.y2 - h.pad_y) / h.scale_y, 0.f), tall)};
}

struct Oriented { float x, y, w, h, theta; };

// Maps a rotated box to image pixels, without clipping; see vision/decoders/obb.py.
// Not inlined: sines and cosines of any angle are long, and the kernels many.
__device__ __noinline__ Oriented oriented_in_image(const Head& h, const Box& b, float theta) {
  const float along_x = cosf(theta) / h.scale_x, along_y = sinf(theta) / h.scale_y;
  const float stretch = hypotf(along_x, along_y);
  return {(b.x1 - h.pad_x) / h.scale_x, (b.y1 - h.pad_y) / h.scale_y, b.x2 * stretch,
          b.y2 / (stretch * h.scale_area),
          h.has_one_scale ? theta : atan2f(along_y, along_x)};
}

__device__ __noinline__ bool overlaps_image(const Head& h, const Box& b, float theta) {
  if (!(is_finite(theta) && b.x2 > 0.f && b.y2 > 0.f)) return false;
  const Oriented o = oriented_in_image(h, b, theta);
  const float along = fabsf(cosf(o.theta)), across = fabsf(sinf(o.theta));
  const float half_x = (o.w * along + o.h * across) / 2.f;
  const float half_y = (o.w * across + o.h * along) / 2.f;
  return o.x + half_x > 0.f && o.x - half_x < (float)h.image_width
      && o.y + half_y > 0.f && o.y - half_y < (float)h.image_height;
}

// Whether a box is finite and overlaps the image.
template <class T> __device__ __noinline__ bool is_usable(const Head& h, int row) {
  const Box b = box_of<T>(h, row);
  if (!(is_finite(b.x1) && is_finite(b.y1) && is_finite(b.x2) && is_finite(b.y2))) return false;
  if (h.form == ROTATED) return overlaps_image(h, b, extra_of<T>(h, row, 0));
  const Box seen = in_image(h, b);
  return seen.x1 < seen.x2 && seen.y1 < seen.y2;
}

// Appends the keys of all lanes with `pass`, with one atomic per warp. Call from whole warps only.
__device__ __forceinline__ void append(const Head& h, bool pass, u64 key) {
  const unsigned passing = __ballot_sync(EVERY, pass);
  if (!passing) return;
  const int lane = threadIdx.x & 31;
  int first = 0;
  if (lane == 0) first = atomicAdd(&h.counters->candidates, __popc(passing));
  first = __shfl_sync(EVERY, first, 0);
  const int mine = first + __popc(passing & ((1u << lane) - 1u));
  if (pass) h.keys[mine] = key;
}

// The best class per row, for rows contiguous in memory: a block of 32 x 8 threads handles 32 rows and
// its 8 warps split the classes. Adjacent threads read adjacent rows, so that loads coalesce.
template <class T> __device__ __forceinline__ void select_columns(const Head& h) {
  __shared__ float scores[8][33];
  __shared__ int labels[8][33];
  const int lane = threadIdx.x, slice = threadIdx.y;
  const int row = blockIdx.x * 32 + lane;
  const bool inside = row < h.rows;
  float best = -1.f;
  int label = 0;
  bool bad = false, spoiled = false;
  if (inside) {
    if (slice < 4) bad = !box_is_finite<T>(h, row, slice);
    for (int k = slice; k < h.extra_count; k += 8) bad |= !is_finite(extra_of<T>(h, row, k));
#pragma unroll 10
    for (int c = slice; c < h.classes; c += 8) {
      const float v = T::at(h.scores, (size_t)row + (size_t)c * h.score_column);
      bad |= !is_finite(v);
      spoiled |= !(v <= LARGEST);
      if (v > best) { best = v; label = c; }
    }
  }
  if (spoiled) best = INFINITE;  // As NumPy's maximum of scores with a NaN: no box.
  scores[slice][lane] = best;
  labels[slice][lane] = label;
  const int any_bad = __syncthreads_count(bad);
  if (slice) return;
  if (any_bad && lane == 0) atomicAdd(&h.counters->nonfinite, any_bad);
  for (int s = 1; s < 8; ++s) {
    const float v = scores[s][lane];
    const int c = labels[s][lane];
    if (v > best || (v == best && c < label)) { best = v; label = c; }
  }
  bool pass = inside && is_finite(best) && best >= min_score(h.request, label);
  if (pass) pass = is_usable<T>(h, row);
  append(h, pass, key_of(best, (unsigned)row * h.classes + label));
}

// The best class per row, for classes contiguous in memory: one warp per row, its lanes split the classes.
template <class T> __device__ __forceinline__ void select_rows(const Head& h) {
  const int lane = threadIdx.x;
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= h.rows) return;
  const size_t base = (size_t)row * h.score_row;
  const int entries = h.classes + (h.activation == SOFTMAX);
  float best = -INFINITE, highest = -INFINITE;
  int label = 0;
  bool spoiled = false, bad = lane < 4 && !box_is_finite<T>(h, row, lane);
  for (int c = lane; c < entries; c += 32) {
    const float v = T::at(h.scores, base + c);
    bad |= !is_finite(v);
    spoiled |= !(v <= LARGEST);
    highest = fmaxf(highest, v);
    if (v > best && c < h.classes) { best = v; label = c; }
  }
  if (spoiled) best = INFINITE;
  for (int apart = 16; apart; apart /= 2) {
    const float v = __shfl_xor_sync(EVERY, best, apart);
    const int c = __shfl_xor_sync(EVERY, label, apart);
    if (v > best || (v == best && c < label)) { best = v; label = c; }
    highest = fmaxf(highest, __shfl_xor_sync(EVERY, highest, apart));
  }
  float score = best;
  if (h.activation == SOFTMAX) {
    float sum = 0.f;
    for (int c = lane; c < entries; c += 32) sum += expf(T::at(h.scores, base + c) - highest);
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(EVERY, sum, apart);
    score = is_finite(best) ? expf(best - highest) / sum : best;
  }
  if (h.objectness) {
    const float objectness = T::at(h.objectness, base);
    bad |= lane == 4 && !is_finite(objectness);
    score *= objectness;
  }
  const int any_bad = __popc(__ballot_sync(EVERY, bad));
  bool pass = is_finite(score) && score >= min_score(h.request, label);
  if (pass) pass = is_usable<T>(h, row);
  if (lane == 0 && any_bad) atomicAdd(&h.counters->nonfinite, any_bad);
  append(h, pass && lane == 0, key_of(score, (unsigned)row * h.classes + label));
}

const int EACH = 4;  // Scores per thread of `select_each_*`.

// Every score is a candidate of its own. A block of 32 x 8 threads adds to the counters once.
template <class T> __device__ __forceinline__ void select_each(const Head& h) {
  __shared__ int passed[8], wrong[8], first;
  const int lane = threadIdx.x, warp = threadIdx.y;
  int rows = h.rows;
  if (h.count) rows = min(rows, integer_at(h.count, h.count_kind, 0));
  u64 keys[EACH];
  unsigned passing[EACH];
  int bad = 0, before = 0;
  for (int i = 0; i < EACH; ++i) {
    const unsigned place = ((unsigned)blockIdx.x * EACH + i) * 256 + warp * 32 + lane;
    const int row = place / h.classes, c = place - row * h.classes;
    bool pass = false;
    float score = 0.f;
    if (row < rows) {
      score = T::at(h.scores, (size_t)row * h.score_row + (size_t)c * h.score_column);
      bad += !is_finite(score);
      if (c == 0) {
        for (int k = 0; k < 4; ++k) bad += !box_is_finite<T>(h, row, k);
        for (int k = 0; k < h.extra_count; ++k) bad += !is_finite(extra_of<T>(h, row, k));
      }
      if (h.activation == SIGMOID) score = 1.f / (1.f + expf(-score));
      pass = c >= h.background && is_finite(score);
      const int label = pass && h.label_kind ? label_at<T>(h, row) : c - h.background;
      if (pass) pass = label >= 0 && score >= min_score(h.request, label);
      if (pass) pass = is_usable<T>(h, row);
    }
    keys[i] = key_of(score, place);
    passing[i] = __ballot_sync(EVERY, pass);
    before += __popc(passing[i]);
  }
  for (int apart = 16; apart; apart /= 2) bad += __shfl_xor_sync(EVERY, bad, apart);
  if (lane == 0) {
    passed[warp] = before;
    wrong[warp] = bad;
  }
  __syncthreads();
  if (lane == 0 && warp == 0) {
    int total = 0, total_bad = 0;
    for (int w = 0; w < 8; ++w) {
      total += passed[w];
      total_bad += wrong[w];
    }
    first = total ? atomicAdd(&h.counters->candidates, total) : 0;
    if (total_bad) atomicAdd(&h.counters->nonfinite, total_bad);
  }
  __syncthreads();
  int place = first;
  for (int w = 0; w < warp; ++w) place += passed[w];
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    if ((passing[i] >> lane) & 1) h.keys[place + __popc(passing[i] & ((1u << lane) - 1u))] = keys[i];
    place += __popc(passing[i]);
  }
}
