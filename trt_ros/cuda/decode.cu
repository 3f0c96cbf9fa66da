// Decoding of network outputs to results in image pixels. Equals trt_ros/vision; test/gpu compares
// the two. All arithmetic is in float32, whatever the dtype of the outputs.
//
// Boxes: `select_*` collects the candidates above the score threshold, `suppress_*` sorts them,
// applies per-class non-maximum suppression where the network needs it, and writes the result.
// Classes per pixel: `argmax_*` writes the mask, `finish` the result header.

typedef unsigned long long u64;

const int SORTED = 2048;   // Candidates sorted at once; more are processed in further rounds.
const int MAX_DETECTIONS = 1024;     // The largest max_detections.
const int CHUNK = 64;      // Candidates suppressed at once: one 64-bit mask per candidate.
const unsigned EVERY = 0xffffffffu;
const float LARGEST = 3.402823466e38f;
#define INFINITE __int_as_float(0x7f800000)

// Parameters that may differ between frames of one graph; copied in with the image.
struct Request {
  float score_threshold, iou_threshold;
  int max_detections, reserved;
};

// Incremented by the first kernel; the last kernel resets them to zero for the next frame.
struct Counters {
  int candidates, nonfinite;
};

// Header of the result. For boxes, the arrays of boxes, scores and labels follow, each of `capacity`
// elements of which `count` are valid.
struct Result {
  int count, candidates, nonfinite, reserved;
};

enum Form { CORNERS, CENTRES, GRID };  // x1 y1 x2 y2; cx cy w h; YOLOX's offsets on a grid.
enum Activation { NONE, SIGMOID, SOFTMAX };  // Softmax: one more entry than classes.
enum Kind { ABSENT, INT32, INT64, SCORES };  // SCORES: the dtype of the scores.

// Box element k of row r is boxes[r * box_row + k * box_column], likewise the scores.
struct Head {
  const void *boxes, *scores;
  const void *objectness;  // Factor of a row's scores, spaced as the rows of `scores`; may be null.
  const void *labels;      // One class per row, where the network outputs classes; may be null.
  const void *count;       // Number of valid rows; may be null, for all.
  const Request* request;  // In device memory, or in mapped host memory.
  Counters* counters;
  u64* keys;               // Scratch, one key per candidate: score, then place, then class.
  unsigned char* result;   // Host memory that the GPU can write.
  int capacity, limit;     // Boxes that fit into the result; boxes that the decoder keeps at most.
  int rows, classes, per_row;  // per_row: candidates per row, 1 or `classes`.
  int box_row, box_column, score_row, score_column, label_row, label_kind, count_kind;
  int form, activation, background, uses_nms;  // background: classes before the first one.
  float box_width, box_height;  // Input size where boxes are normalised to 0 to 1; 1 where they are in pixels.
  int input_width, input_height, levels, strides[4];  // YOLOX's grid.
  float scale_x, scale_y, pad_x, pad_y;               // input = image * scale + pad
  int image_width, image_height;
};

struct Float32 {
  static __device__ __forceinline__ float at(const void* values, size_t i) {
    return __ldg((const float*)values + i);
  }
};
struct Float16 {
  static __device__ __forceinline__ float at(const void* values, size_t i) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(__ldg((const unsigned short*)values + i)));
    return value;
  }
};
struct Bfloat16 {
  static __device__ __forceinline__ float at(const void* values, size_t i) {
    return __uint_as_float((unsigned)__ldg((const unsigned short*)values + i) << 16);
  }
};

__device__ __forceinline__ bool is_finite(float v) { return fabsf(v) <= LARGEST; }

// Sorts by score, then by lower place. Keys are unique, so that the order never depends on scheduling.
__device__ __forceinline__ u64 key_of(float score, int place, int label) {
  return ((u64)__float_as_uint(score + 0.f) << 32) | ((u64)(0xfffff - place) << 12) | (u64)label;
}
__device__ __forceinline__ float score_of(u64 key) { return __uint_as_float((unsigned)(key >> 32)); }
__device__ __forceinline__ int place_of(u64 key) { return 0xfffff - (int)((key >> 12) & 0xfffff); }
__device__ __forceinline__ int label_of(u64 key) { return (int)(key & 0xfff); }

struct Box { float x1, y1, x2, y2; };

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
  if (h.form == CORNERS) {
    return {x * h.box_width, y * h.box_height, w * h.box_width, t * h.box_height};
  }
  const float half_w = w / 2.f, half_h = t / 2.f;
  return {(x - half_w) * h.box_width, (y - half_h) * h.box_height,
          (x + half_w) * h.box_width, (y + half_h) * h.box_height};
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

// Whether a box is finite and overlaps the image.
__device__ __forceinline__ bool is_usable(const Head& h, const Box& b) {
  if (!(is_finite(b.x1) && is_finite(b.y1) && is_finite(b.x2) && is_finite(b.y2))) return false;
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
  bool pass = inside && best >= h.request->score_threshold && is_finite(best);
  if (pass) pass = is_usable(h, box_of<T>(h, row));
  append(h, pass, key_of(best, row, label));
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
  bool pass = score >= h.request->score_threshold && is_finite(score);
  if (pass) pass = is_usable(h, box_of<T>(h, row));
  if (lane == 0 && any_bad) atomicAdd(&h.counters->nonfinite, any_bad);
  append(h, pass && lane == 0, key_of(score, row, label));
}

// Every score is a candidate of its own: one thread per score.
template <class T> __device__ __forceinline__ void select_each(const Head& h) {
  const int place = blockIdx.x * 256 + threadIdx.y * 32 + threadIdx.x;
  const int row = place / h.classes, c = place - row * h.classes;
  int rows = h.rows;
  if (h.count) rows = min(rows, integer_at(h.count, h.count_kind, 0));
  bool bad = false, pass = false;
  float score = 0.f;
  if (row < rows) {
    score = T::at(h.scores, (size_t)row * h.score_row + (size_t)c * h.score_column);
    bad = !is_finite(score);
    if (c == 0) for (int k = 0; k < 4; ++k) bad |= !box_is_finite<T>(h, row, k);
    if (h.activation == SIGMOID) score = 1.f / (1.f + expf(-score));
    pass = c >= h.background && score >= h.request->score_threshold && is_finite(score);
    if (pass && h.label_kind) pass = label_at<T>(h, row) >= 0;
    if (pass) pass = is_usable(h, box_of<T>(h, row));
  }
  const unsigned any_bad = __ballot_sync(EVERY, bad);
  if (any_bad && threadIdx.x == 0) atomicAdd(&h.counters->nonfinite, __popc(any_bad));
  append(h, pass, key_of(score, place, h.label_kind ? 0 : c - h.background));
}

__device__ __forceinline__ bool overlap(const Box& a, const Box& b, float threshold) {
  const float wide = fmaxf(fminf(a.x2, b.x2) - fmaxf(a.x1, b.x1), 0.f);
  const float tall = fmaxf(fminf(a.y2, b.y2) - fmaxf(a.y1, b.y1), 0.f);
  const float both = wide * tall;
  const float either = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1) - both;
  return either > 0.f && both / either > threshold;
}

// Finds the smallest of the SORTED largest keys below `bound`, by radix selection, eight bits per round.
__device__ u64 cut_below(const u64* keys, int count, u64 bound, unsigned* histogram) {
  __shared__ u64 found;
  __shared__ int wanted, exact;
  u64 prefix = 0;
  if (threadIdx.x == 0) wanted = SORTED;
  for (int shift = 56; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int first = 0; first < count; first += blockDim.x) {
      const int i = first + threadIdx.x;
      const u64 key = i < count ? keys[i] : ~0ull;
      // A shift by 64 is undefined, so the first round, without a prefix, is a separate case.
      const bool counts = key < bound && (shift == 56 || (key >> (shift + 8)) == prefix);
      const unsigned digit = counts ? (unsigned)(key >> shift) & 255u : 256u;
      // Most keys share a digit: one atomic for all lanes with the same digit.
      const unsigned same = __match_any_sync(EVERY, digit);
      if (counts && (int)(threadIdx.x & 31) == __ffs(same) - 1) {
        atomicAdd(&histogram[digit], __popc(same));
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int above = 0, digit = 255;
      while (above + (int)histogram[digit] < wanted) above += histogram[digit--];
      wanted -= above;
      exact = (int)histogram[digit] == wanted;
      found = (prefix << 8) | (u64)digit;
    }
    __syncthreads();
    prefix = found;
    if (exact) return prefix << shift;
    __syncthreads();
  }
  return prefix;
}

__device__ void sort_descending(u64* keys, int length) {
  for (int size = 2; size <= length; size *= 2) {
    for (int apart = size / 2; apart; apart /= 2) {
      for (int i = threadIdx.x; i < length / 2; i += blockDim.x) {
        const int low = 2 * i - (i & (apart - 1));
        const int high = low + apart;
        const bool descending = (low & size) == 0;
        const u64 a = keys[low], b = keys[high];
        if ((a < b) == descending) { keys[low] = b; keys[high] = a; }
      }
      __syncthreads();
    }
  }
}

// One block of 1024 threads. Greedy, best score first, 64 candidates at a time: each is compared
// with all boxes kept so far, then the 64 with each other through bit masks.
template <class T> __device__ __forceinline__ void suppress(const Head& h) {
  __shared__ u64 keys[SORTED];
  __shared__ Box kept_boxes[MAX_DETECTIONS];
  __shared__ u64 kept_keys[MAX_DETECTIONS];
  __shared__ Box boxes[CHUNK];
  __shared__ u64 rows[CHUNK];
  __shared__ int dead[CHUNK];
  __shared__ unsigned histogram[256];
  __shared__ u64 keeps;
  __shared__ int filled;

  const int t = threadIdx.x;
  const Request request = *h.request;
  const Counters counted = *h.counters;
  const int total = min(counted.candidates, h.rows * h.per_row);
  const int limit = min(min(request.max_detections, h.limit), min(h.capacity, MAX_DETECTIONS));
  const u64* candidates = h.keys;
  u64 bound = ~0ull;
  int kept = 0;

  for (int seen = 0; seen < total && kept < limit; seen += SORTED) {
    const int count = min(total - seen, SORTED);
    const u64 cut = total - seen > SORTED ? cut_below(candidates, total, bound, histogram) : 0;
    if (t == 0) filled = 0;
    __syncthreads();
    for (int i = t; i < total; i += blockDim.x) {
      const u64 key = candidates[i];
      if (key >= cut && key < bound) keys[atomicAdd(&filled, 1)] = key;
    }
    int length = 2;
    while (length < count) length *= 2;
    for (int i = count + t; i < length; i += blockDim.x) keys[i] = 0;
    __syncthreads();
    sort_descending(keys, length);
    bound = keys[count - 1];

    Box next = {0.f, 0.f, 0.f, 0.f};
    if (t < CHUNK && t < count) next = box_of<T>(h, place_of(keys[t]) / h.per_row);
    for (int base = 0; base < count && kept < limit; base += CHUNK) {
      const int size = min(CHUNK, count - base);
      if (t < CHUNK) boxes[t] = next;
      __syncthreads();
      // Prefetch the next chunk's boxes while this chunk is processed.
      const int ahead = base + CHUNK + t;
      if (t < CHUNK && ahead < count) next = box_of<T>(h, place_of(keys[ahead]) / h.per_row);

      const int mine = t >> 4, part = t & 15;  // 16 threads per candidate.
      const bool inside = mine < size && h.uses_nms;
      const Box box = boxes[mine];
      const int label = inside ? label_of(keys[base + mine]) : -1;
      bool hit = false;
      for (int k = part; inside && k < kept && !hit; k += 16) {
        hit = label_of(kept_keys[k]) == label && overlap(kept_boxes[k], box, request.iou_threshold);
      }
      const int sixteen = (mine & 1) * 16;
      const unsigned hits = (__ballot_sync(EVERY, hit) >> sixteen) & 0xffffu;
      u64 row = 0;
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int other = part + 16 * quarter;
        const bool covers = inside && other > mine && other < size
            && label_of(keys[base + other]) == label
            && overlap(box, boxes[other], request.iou_threshold);
        row |= (u64)((__ballot_sync(EVERY, covers) >> sixteen) & 0xffffu) << (16 * quarter);
      }
      if (part == 0) {
        dead[mine] = hits != 0;
        rows[mine] = row;
      }
      __syncthreads();
      if (t < 32) {
        const unsigned low = __ballot_sync(EVERY, dead[t] || t >= size);
        const unsigned high = __ballot_sync(EVERY, dead[t + 32] || t + 32 >= size);
        if (t == 0) {
          u64 removed = ((u64)high << 32) | low;
#pragma unroll 16
          for (int i = 0; i < CHUNK; ++i) {
            const u64 row_i = rows[i];
            removed |= (removed >> i) & 1 ? 0 : row_i;
          }
          keeps = ~removed;
        }
      }
      __syncthreads();
      const u64 alive = keeps;
      if (t < CHUNK && (alive >> t) & 1) {
        const int place = kept + __popcll(alive & ((1ull << t) - 1));
        if (place < MAX_DETECTIONS) {
          kept_boxes[place] = boxes[t];
          kept_keys[place] = keys[base + t];
        }
      }
      kept = min(kept + __popcll(alive), MAX_DETECTIONS);
      __syncthreads();
    }
    __syncthreads();
  }

  kept = min(kept, limit);
  unsigned char* out = h.result;
  float4* out_boxes = (float4*)(out + sizeof(Result));
  float* out_scores = (float*)(out_boxes + h.capacity);
  int* out_labels = (int*)(out_scores + h.capacity);
  for (int i = t; i < kept; i += blockDim.x) {
    const Box b = in_image(h, kept_boxes[i]);
    out_boxes[i] = make_float4(b.x1, b.y1, b.x2, b.y2);
    out_scores[i] = score_of(kept_keys[i]);
    out_labels[i] = h.label_kind ? label_at<T>(h, place_of(kept_keys[i]) / h.per_row)
                                 : label_of(kept_keys[i]);
  }
  __syncthreads();  // All threads have read the counters.
  if (t == 0) *h.counters = {0, 0};
  if (t == 0) *(Result*)out = {kept, counted.candidates, counted.nonfinite, 0};
}

// Cell coordinates of pixels along one axis: pixel i is at origin + i * pitch, clamped to `low` and
// `high`. In double precision, as NumPy computes it.
struct Axis {
  double origin, pitch;
  int low, high;
};

struct Argmax {
  const void* cells;      // Scores.
  Counters* counters;
  Result* result;         // Host memory that the GPU can write; `count` stays 0.
  unsigned char* mask;    // Host memory, likewise: (height, pitch) labels of one or two bytes.
  int classes, cell_step, line_step, class_step;  // In elements.
  int width, height, pitch, wide;  // pitch: labels per line, a multiple of 4; wide: two bytes each.
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

template <class T> __device__ __forceinline__ void argmax(const Argmax& a) {
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
      ((ushort4*)a.mask)[place / PIXELS] = make_ushort4(labels[0], labels[1], labels[2], labels[3]);
    } else {
      ((uchar4*)a.mask)[place / PIXELS] = make_uchar4(labels[0], labels[1], labels[2], labels[3]);
    }
  }
  const unsigned any = __ballot_sync(EVERY, bad);
  if (any && threadIdx.x == 0) atomicAdd(&a.counters->nonfinite, __popc(any));
}

// One thread, launched after `argmax_*`.
extern "C" __global__ void finish(const __grid_constant__ Argmax a) {
  *a.result = {0, 0, a.counters->nonfinite, 0};
  *a.counters = {0, 0};
}

#define KERNELS(DTYPE, T)                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                 \
  select_columns_##DTYPE(const __grid_constant__ Head h) { select_columns<T>(h); }  \
  extern "C" __global__ void __launch_bounds__(256)                                 \
  select_rows_##DTYPE(const __grid_constant__ Head h) { select_rows<T>(h); }        \
  extern "C" __global__ void __launch_bounds__(256)                                 \
  select_each_##DTYPE(const __grid_constant__ Head h) { select_each<T>(h); }        \
  extern "C" __global__ void __launch_bounds__(1024)                                \
  suppress_##DTYPE(const __grid_constant__ Head h) { suppress<T>(h); }              \
  extern "C" __global__ void __launch_bounds__(256)                                 \
  argmax_##DTYPE(const __grid_constant__ Argmax a) { argmax<T>(a); }

KERNELS(float32, Float32)
KERNELS(float16, Float16)
KERNELS(bfloat16, Bfloat16)
