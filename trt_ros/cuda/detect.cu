// From a detector's raw head to boxes in image pixels: `select_*` finds the anchors that score enough,
// `suppress_*` sorts them, does per-class non-maximum suppression and writes the result.
// Equals trt_ros/vision; test/gpu compares the two. Boxes and scores are float32 whatever the head is.

typedef unsigned long long u64;

const int SORTED = 2048;   // Candidates sorted at once; more are taken in further rounds.
const int MOST = 1024;     // The largest max_detections.
const int CHUNK = 64;      // Candidates decided at once: one 64-bit mask a row.
const unsigned EVERY = 0xffffffffu;
const float LARGEST = 3.402823466e38f;

// What may change from frame to frame; copied in with the image.
struct Request {
  float score_threshold, iou_threshold;
  int max_detections, reserved;
};

// Counted by `select`; `suppress` sets them back to zero for the next frame.
struct Counters {
  int candidates, nonfinite;
};

// What leaves: `count` boxes, then their scores, then their labels, each MOST or `capacity` long.
struct Result {
  int count, candidates, nonfinite, reserved;
};

struct Head {
  const void* values;     // YOLOv8: (4 + classes, anchors); YOLOX: (anchors, 5 + classes).
  const Request* request;  // In device memory, or in mapped host memory.
  Counters* counters;
  u64* keys;              // (anchors,) scratch: score, then anchor, then class.
  unsigned char* result;  // Host memory that the GPU can write.
  int capacity, anchors, classes;
  int input_width, input_height, levels, strides[4];  // YOLOX's grid; levels 0: already decoded.
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

// Sorts by score, then by lower anchor; unique, so that the order never depends on the schedule.
__device__ __forceinline__ u64 key_of(float score, int anchor, int label) {
  return ((u64)__float_as_uint(score + 0.f) << 32) | ((u64)(0xfffff - anchor) << 12) | (u64)label;
}
__device__ __forceinline__ float score_of(u64 key) { return __uint_as_float((unsigned)(key >> 32)); }
__device__ __forceinline__ int anchor_of(u64 key) { return 0xfffff - (int)((key >> 12) & 0xfffff); }
__device__ __forceinline__ int label_of(u64 key) { return (int)(key & 0xfff); }

struct Box { float x1, y1, x2, y2; };

template <class T> struct Yolov8 {
  static __device__ __forceinline__ Box box(const Head& h, int anchor) {
    const size_t base = anchor;
    const float x = T::at(h.values, base), y = T::at(h.values, base + h.anchors);
    const float half_w = T::at(h.values, base + 2 * (size_t)h.anchors) / 2.f;
    const float half_h = T::at(h.values, base + 3 * (size_t)h.anchors) / 2.f;
    return {x - half_w, y - half_h, x + half_w, y + half_h};
  }
};

template <class T> struct Yolox {
  static __device__ __forceinline__ Box box(const Head& h, int anchor) {
    const size_t base = (size_t)anchor * (5 + h.classes);
    float x = T::at(h.values, base), y = T::at(h.values, base + 1);
    float w = T::at(h.values, base + 2), t = T::at(h.values, base + 3);
    int in_level = anchor;
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
    const float half_w = w / 2.f, half_h = t / 2.f;
    return {x - half_w, y - half_h, x + half_w, y + half_h};
  }
};

// From the network's input to the image, clipped to it.
__device__ __forceinline__ Box in_image(const Head& h, const Box& b) {
  const float wide = (float)h.image_width, tall = (float)h.image_height;
  return {fminf(fmaxf((b.x1 - h.pad_x) / h.scale_x, 0.f), wide),
          fminf(fmaxf((b.y1 - h.pad_y) / h.scale_y, 0.f), tall),
          fminf(fmaxf((b.x2 - h.pad_x) / h.scale_x, 0.f), wide),
          fminf(fmaxf((b.y2 - h.pad_y) / h.scale_y, 0.f), tall)};
}

// Finite, and with something inside the image.
__device__ __forceinline__ bool is_usable(const Head& h, const Box& b) {
  if (!(is_finite(b.x1) && is_finite(b.y1) && is_finite(b.x2) && is_finite(b.y2))) return false;
  const Box seen = in_image(h, b);
  return seen.x1 < seen.x2 && seen.y1 < seen.y2;
}

// Appends the keys of the lanes that `pass`; one atomic a warp. Called by whole warps.
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

// A block of 32 x 8 threads takes 32 anchors; its 8 rows share the classes. Neighbouring threads read
// neighbouring anchors, so that every load of a warp is one 128-byte line.
template <class T> __device__ __forceinline__ void select_yolov8(const Head& h) {
  __shared__ float scores[8][33];
  __shared__ int labels[8][33];
  const int lane = threadIdx.x, slice = threadIdx.y;
  const int anchor = blockIdx.x * 32 + lane;
  const bool inside = anchor < h.anchors;
  float best = -1.f;
  int label = 0;
  bool bad = false, spoiled = false;
  if (inside) {
    const size_t base = anchor;
    if (slice < 4) bad = !is_finite(T::at(h.values, base + (size_t)slice * h.anchors));
#pragma unroll 10
    for (int c = slice; c < h.classes; c += 8) {
      const float v = T::at(h.values, base + (size_t)(4 + c) * h.anchors);
      bad |= !is_finite(v);
      spoiled |= !(v <= LARGEST);
      if (v > best) { best = v; label = c; }
    }
  }
  if (spoiled) best = __int_as_float(0x7f800000);  // As the largest of scores with a NaN: no box.
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
  if (pass) pass = is_usable(h, Yolov8<T>::box(h, anchor));
  append(h, pass, key_of(best, anchor, label));
}

// A warp an anchor, its lanes share the classes.
template <class T> __device__ __forceinline__ void select_yolox(const Head& h) {
  const int lane = threadIdx.x;
  const int anchor = blockIdx.x * blockDim.y + threadIdx.y;
  if (anchor >= h.anchors) return;
  const size_t base = (size_t)anchor * (5 + h.classes);
  float best = -1.f;
  int label = 0;
  bool spoiled = false, bad = lane < 5 && !is_finite(T::at(h.values, base + lane));
  for (int c = lane; c < h.classes; c += 32) {
    const float v = T::at(h.values, base + 5 + c);
    bad |= !is_finite(v);
    spoiled |= !(v <= LARGEST);
    if (v > best) { best = v; label = c; }
  }
  if (spoiled) best = __int_as_float(0x7f800000);
  for (int apart = 16; apart; apart /= 2) {
    const float v = __shfl_xor_sync(EVERY, best, apart);
    const int c = __shfl_xor_sync(EVERY, label, apart);
    if (v > best || (v == best && c < label)) { best = v; label = c; }
  }
  const int any_bad = __popc(__ballot_sync(EVERY, bad));
  const float score = best * T::at(h.values, base + 4);
  bool pass = score >= h.request->score_threshold && is_finite(score);
  if (pass) pass = is_usable(h, Yolox<T>::box(h, anchor));
  if (lane == 0 && any_bad) atomicAdd(&h.counters->nonfinite, any_bad);
  append(h, pass && lane == 0, key_of(score, anchor, label));
}

__device__ __forceinline__ bool overlap(const Box& a, const Box& b, float threshold) {
  const float wide = fmaxf(fminf(a.x2, b.x2) - fmaxf(a.x1, b.x1), 0.f);
  const float tall = fmaxf(fminf(a.y2, b.y2) - fmaxf(a.y1, b.y1), 0.f);
  const float both = wide * tall;
  const float either = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1) - both;
  return either > 0.f && both / either > threshold;
}

// Finds the smallest key among the SORTED largest that are below `bound`, eight bits at a time.
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
      // A shift by 64 is undefined, so the first round, which has no prefix, is told apart.
      const bool counts = key < bound && (shift == 56 || (key >> (shift + 8)) == prefix);
      const unsigned digit = counts ? (unsigned)(key >> shift) & 255u : 256u;
      // Most keys share a digit: one atomic for all lanes that have the same.
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

// One block of 1024 threads. Greedy, best score first, 64 candidates at a time: first each
// against all kept so far, then the 64 among themselves through bit masks.
template <class Family> __device__ __forceinline__ void suppress(const Head& h) {
  __shared__ u64 keys[SORTED];
  __shared__ Box kept_boxes[MOST];
  __shared__ u64 kept_keys[MOST];
  __shared__ Box boxes[CHUNK];
  __shared__ u64 rows[CHUNK];
  __shared__ int dead[CHUNK];
  __shared__ unsigned histogram[256];
  __shared__ u64 keeps;
  __shared__ int filled;

  const int t = threadIdx.x;
  const Request request = *h.request;
  const Counters counted = *h.counters;
  const int total = min(counted.candidates, h.anchors);
  const int most = min(min(request.max_detections, h.capacity), MOST);
  const u64* candidates = h.keys;
  u64 bound = ~0ull;
  int kept = 0;

  for (int seen = 0; seen < total && kept < most; seen += SORTED) {
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
    if (t < CHUNK && t < count) next = Family::box(h, anchor_of(keys[t]));
    for (int base = 0; base < count && kept < most; base += CHUNK) {
      const int size = min(CHUNK, count - base);
      if (t < CHUNK) boxes[t] = next;
      __syncthreads();
      // The next chunk's boxes are on their way while this one is decided.
      const int ahead = base + CHUNK + t;
      if (t < CHUNK && ahead < count) next = Family::box(h, anchor_of(keys[ahead]));

      const int mine = t >> 4, part = t & 15;  // 16 threads a candidate.
      const bool inside = mine < size;
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
        if (place < MOST) {
          kept_boxes[place] = boxes[t];
          kept_keys[place] = keys[base + t];
        }
      }
      kept = min(kept + __popcll(alive), MOST);
      __syncthreads();
    }
    __syncthreads();
  }

  kept = min(kept, most);
  unsigned char* out = h.result;
  float4* out_boxes = (float4*)(out + sizeof(Result));
  float* out_scores = (float*)(out_boxes + h.capacity);
  int* out_labels = (int*)(out_scores + h.capacity);
  for (int i = t; i < kept; i += blockDim.x) {
    const Box b = in_image(h, kept_boxes[i]);
    out_boxes[i] = make_float4(b.x1, b.y1, b.x2, b.y2);
    out_scores[i] = score_of(kept_keys[i]);
    out_labels[i] = label_of(kept_keys[i]);
  }
  __syncthreads();  // All have read the counters.
  if (t == 0) *h.counters = {0, 0};
  if (t == 0) *(Result*)out = {kept, counted.candidates, counted.nonfinite, 0};
}

#define KERNELS(NAME, FAMILY, BOX, DTYPE)                                                        \
  extern "C" __global__ void __launch_bounds__(256)                                              \
  select_##NAME(const __grid_constant__ Head h) { select_##FAMILY<DTYPE>(h); }                   \
  extern "C" __global__ void __launch_bounds__(1024)                                             \
  suppress_##NAME(const __grid_constant__ Head h) { suppress<BOX<DTYPE>>(h); }

KERNELS(yolov8_float32, yolov8, Yolov8, Float32)
KERNELS(yolov8_float16, yolov8, Yolov8, Float16)
KERNELS(yolov8_bfloat16, yolov8, Yolov8, Bfloat16)
KERNELS(yolox_float32, yolox, Yolox, Float32)
KERNELS(yolox_float16, yolox, Yolox, Float16)
KERNELS(yolox_bfloat16, yolox, Yolox, Bfloat16)
