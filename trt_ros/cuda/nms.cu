// Non-maximum suppression: `rank_*` sorts the candidates, `mask_*` compares all of them with each other
// and `reduce_*` keeps the best, without a wait for the host between them. These see the best TOP
// candidates. If there are more, `cut_*` or `narrow` and `gather` find the best TOP before, `filter_*`
// drops those of the others that a kept box suppresses, and `rest_*` goes on with what is left.

const int TOP = 10240;        // Candidates sorted and compared at once.
const int GROUP = 256;        // Candidates that `reduce_*` decides at once.
const int SORTED = 2048;      // Candidates that `rest_*` sorts at once.
const int CHUNK = 64;         // Candidates that `rest_*` decides at once.
const int DIGITS = 2048;      // Values of a digit of a key in `narrow`.

// Two boxes overlap by more than `threshold`: both / either > threshold. Comparing products first
// avoids most divisions; near the threshold the division decides, as in NumPy.
struct Upright {
  Box box;
  float area;

  static __device__ __forceinline__ Upright at(const Head& h, int i) {
    const float4 b = h.boxes_sorted[i];
    return {{b.x, b.y, b.z, b.w}, (b.z - b.x) * (b.w - b.y)};
  }
  template <class T> static __device__ __noinline__ Upright of(const Head& h, int row) {
    const Box b = box_of<T>(h, row);
    return {b, (b.x2 - b.x1) * (b.y2 - b.y1)};
  }
  __device__ __forceinline__ float4 corners() const { return {box.x1, box.y1, box.x2, box.y2}; }
  __device__ __forceinline__ float4 shape() const { return {0.f, 0.f, 0.f, 0.f}; }
  __device__ __forceinline__ bool suppresses(const Upright& other, float threshold) const {
    const float wide = fminf(box.x2, other.box.x2) - fmaxf(box.x1, other.box.x1);
    const float tall = fminf(box.y2, other.box.y2) - fmaxf(box.y1, other.box.y1);
    if (!(wide > 0.f && tall > 0.f)) return false;
    const float both = wide * tall;
    const float either = area + other.area - both;
    const float edge = threshold * either;
    if (edge > 1e-30f && threshold > 1e-6f) {  // No product has lost digits to underflow.
      if (both > edge * 1.000001f) return true;
      if (both < edge * 0.999999f) return false;
    }
    return either > 0.f && both / either > threshold;
  }
};

// The probabilistic IoU of rotated boxes, see vision/decoders/obb.py. NaN never exceeds a threshold.
struct Rotated {
  Box box;
  float a, b, c, theta;  // Covariance matrix.

  static __device__ __forceinline__ Rotated at(const Head& h, int i) {
    const float4 b = h.boxes_sorted[i], s = h.shapes_sorted[i];
    return {{b.x, b.y, b.z, b.w}, s.x, s.y, s.z, s.w};
  }
  template <class T> static __device__ __noinline__ Rotated of(const Head& h, int row) {
    return of(box_of<T>(h, row), extra_of<T>(h, row, 0));
  }
  static __device__ __noinline__ Rotated of(const Box& b, float theta) {
    const float cosine = cosf(theta), sine = sinf(theta);
    const float along = b.x2 * b.x2 / 12.f, across = b.y2 * b.y2 / 12.f;
    return {b, along * cosine * cosine + across * sine * sine,
            along * sine * sine + across * cosine * cosine, (along - across) * cosine * sine, theta};
  }
  __device__ __forceinline__ float4 corners() const { return {box.x1, box.y1, box.x2, box.y2}; }
  __device__ __forceinline__ float4 shape() const { return {a, b, c, theta}; }
  __device__ __noinline__ bool suppresses(const Rotated& other, float threshold) const {
    const float tiny = 1e-12f, x = a + other.a, y = b + other.b, z = c + other.c;
    const float product = x * y - z * z, area = product < tiny ? tiny : product;
    const float dx = box.x1 - other.box.x1, dy = box.y1 - other.box.y1;
    const float apart = (x * dy * dy + y * dx * dx - 2.f * z * dx * dy) / area / 4.f;
    const float sides = box.x2 * box.y2 * other.box.x2 * other.box.y2 / 144.f;
    const float ratio = area / (4.f * (sides < tiny ? tiny : sides));
    const float sum = apart + logf(ratio < 1.f ? 1.f : ratio) / 2.f;
    return 1.f - sqrtf(-expm1f(-(sum < 0.f ? 0.f : sum))) > threshold;
  }
};

__device__ __forceinline__ int candidate_count(const Head& h) {
  return min(h.counters->candidates, h.places);
}
__device__ __forceinline__ int detection_limit(const Head& h) {
  return min(max(h.request->max_detections, 0), h.capacity);
}

// Finds the smallest of the `wanted` largest keys below `bound`, of which there are more, by radix
// selection in one block, eight bits per round.
__device__ __noinline__ u64 cut_below(const u64* keys, int count, u64 bound, int wanted, unsigned* histogram) {
  __shared__ u64 found;
  __shared__ int missing, exact;
  u64 prefix = 0;
  if (threadIdx.x == 0) missing = wanted;
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
      while (above + (int)histogram[digit] < missing) above += histogram[digit--];
      missing -= above;
      exact = (int)histogram[digit] == missing;
      found = (prefix << 8) | (u64)digit;
    }
    __syncthreads();
    prefix = found;
    if (exact) return prefix << shift;
    __syncthreads();
  }
  return prefix;
}

// Appends the best TOP keys to `top`, where there are more. One block of 1024 threads.
extern "C" __global__ void __launch_bounds__(1024) cut(const __grid_constant__ Head h) {
  __shared__ unsigned histogram[256];
  __shared__ int filled;
  const int total = candidate_count(h);
  if (total <= TOP) return;
  const u64 bound = cut_below(h.keys, total, ~0ull, TOP, histogram);
  if (threadIdx.x == 0) filled = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < total; i += blockDim.x) {
    const u64 key = h.keys[i];
    if (key >= bound) h.top[atomicAdd(&filled, 1)] = key;
  }
  if (threadIdx.x == 0) h.counters->bound = bound;
}

// One digit of the same search in many blocks of 256 threads: each launch finds eleven more bits of the
// bound, from the top. The block that finishes last reads the histogram of all.
extern "C" __global__ void __launch_bounds__(256) narrow(const __grid_constant__ Head h) {
  __shared__ unsigned counts[DIGITS];
  __shared__ int above[256];
  __shared__ int is_last;
  Counters& state = *h.counters;
  const int total = candidate_count(h), t = threadIdx.x;
  if (total <= TOP || state.narrowed) return;
  const u64 prefix = state.prefix;
  const bool is_first = h.shift == 55;
  for (int digit = t; digit < DIGITS; digit += 256) counts[digit] = 0;
  __syncthreads();
  for (int first = blockIdx.x * 256; first < total; first += gridDim.x * 256) {
    const int i = first + t;
    const u64 key = i < total ? h.keys[i] : 0;
    const bool matches = i < total && (is_first || (key >> (h.shift + 11)) == prefix);
    const unsigned digit = (unsigned)(key >> h.shift) & (DIGITS - 1);
    const unsigned matching = __ballot_sync(EVERY, matches);
    if (!matching) continue;
    // Equal scores share all upper digits: one atomic for a warp of one digit.
    const unsigned leader = __shfl_sync(EVERY, digit, __ffs(matching) - 1);
    if (__all_sync(EVERY, !matches || digit == leader)) {
      if ((t & 31) == 0) atomicAdd(&counts[leader], __popc(matching));
    } else if (matches) {
      atomicAdd(&counts[digit], 1);
    }
  }
  __syncthreads();
  for (int digit = t; digit < DIGITS; digit += 256) {
    if (counts[digit]) atomicAdd(&h.histogram[digit], counts[digit]);
  }
  __threadfence();
  __syncthreads();
  if (t == 0) is_last = atomicAdd(&state.blocks, 1) == (int)gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  // Thread t has the eight digits from DIGITS - 8 * (t + 1); `above`: keys of all greater digits.
  const int low = DIGITS - 8 * (t + 1);
  int mine[8], sum = 0;
  for (int k = 0; k < 8; ++k) {
    mine[k] = (int)__ldcg(h.histogram + low + k);
    sum += mine[k];
    h.histogram[low + k] = 0;
  }
  above[t] = sum;
  __syncthreads();
  for (int apart = 1; apart < 256; apart *= 2) {
    const int other = t >= apart ? above[t - apart] : 0;
    __syncthreads();
    above[t] += other;
    __syncthreads();
  }
  const int wanted = is_first ? TOP : state.wanted;
  __syncthreads();  // All threads have read the state.
  int greater = above[t] - sum;
  if (greater < wanted && above[t] >= wanted) {
    int k = 7;
    while (greater + mine[k] < wanted) greater += mine[k--];
    const u64 found = (prefix << 11) | (u64)(low + k);
    state.prefix = found;
    state.wanted = wanted - greater;
    if (mine[k] == wanted - greater || h.shift == 0) {
      state.bound = found << h.shift;
      state.narrowed = 1;
    }
  }
  if (t == 0) state.blocks = 0;
}

// Appends the best TOP keys to `top` after `narrow`; many blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(256) gather(const __grid_constant__ Head h) {
  const int total = candidate_count(h), lane = threadIdx.x & 31;
  if (total <= TOP) return;
  const u64 bound = h.counters->bound;
  for (int first = blockIdx.x * 256; first < total; first += gridDim.x * 256) {
    const int i = first + threadIdx.x;
    const u64 key = i < total ? h.keys[i] : 0;
    const unsigned passing = __ballot_sync(EVERY, i < total && key >= bound);
    if (!passing) continue;
    int place = 0;
    if (lane == 0) place = atomicAdd(&h.counters->gathered, __popc(passing));
    place = __shfl_sync(EVERY, place, 0) + __popc(passing & ((1u << lane) - 1u));
    if ((passing >> lane) & 1) h.top[place] = key;
  }
}

// Sorts by counting, for each candidate, the keys above its own. A block of 32 x 8 threads ranks 64
// candidates; each of its warps compares them with an eighth of all.
template <class T, class Shape> __device__ __forceinline__ void rank(const Head& h) {
  __shared__ int above[8][64];
  const int lane = threadIdx.x, part = threadIdx.y, first = blockIdx.x * 64;
  const int total = candidate_count(h), count = min(total, TOP);
  if (first >= count) return;
  const u64* keys = total > TOP ? h.top : h.keys;
  const u64 upper = first + lane < count ? keys[first + lane] : 0;
  const u64 lower = first + lane + 32 < count ? keys[first + lane + 32] : 0;
  const ulonglong2* pairs = (const ulonglong2*)keys;
  int a = 0, b = 0;
#pragma unroll 4
  for (int i = part; i < count / 2; i += 8) {
    const ulonglong2 two = __ldg(pairs + i);
    a += (two.x > upper) + (two.y > upper);
    b += (two.x > lower) + (two.y > lower);
  }
  if ((count & 1) && part == 0) {
    a += keys[count - 1] > upper;
    b += keys[count - 1] > lower;
  }
  above[part][lane] = a;
  above[part][lane + 32] = b;
  __syncthreads();
  const int mine = part * 32 + lane;
  if (mine >= 64 || first + mine >= count) return;
  int place = 0;
  for (int p = 0; p < 8; ++p) place += above[p][mine];
  const u64 key = keys[first + mine];
  h.sorted[place] = key;
  const Shape shape = Shape::template of<T>(h, row_of(h, key));
  h.boxes_sorted[place] = shape.corners();
  if (h.form == ROTATED) h.shapes_sorted[place] = shape.shape();
}

// Compares 64 candidates with 256 others: bit b of word w in row r is set where candidate r suppresses
// candidate 64 * w + b, a worse one. Among the 256 of one group it is set where r is suppressed by that
// candidate, a better one. Blocks of 256 threads.
template <class Shape> __device__ __forceinline__ void mask(const Head& h) {
  __shared__ Shape others[GROUP];
  __shared__ int classes[GROUP];
  const int t = threadIdx.x, count = min(candidate_count(h), TOP);
  const int groups = (count + GROUP - 1) / GROUP;
  const float threshold = h.request->iou_threshold;
  // Group s is compared with s and all after it. Groups s and groups - 1 - s together make a line.
  const int tiles = (groups + 1) / 2 * (groups + 1) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int line = tile / 4 / (groups + 1), column = tile / 4 % (groups + 1);
    const bool is_second = column >= groups - line;
    if (is_second && groups - 1 - line == line) continue;
    const int group = is_second ? groups - 1 - line : line;
    const int other = is_second ? column - 1 : group + column;
    __syncthreads();  // The previous tile has been read.
    const int loaded = other * GROUP + t;
    classes[t] = -1;
    if (loaded < count) {
      others[t] = Shape::at(h, loaded);
      classes[t] = class_of(h, h.sorted[loaded]);
    }
    __syncthreads();
    const int word = tile & 3, in_word = t & 63, column_word = t >> 6;
    const int row = group * GROUP + word * 64 + in_word;
    if (row >= count || (group == other && column_word > word)) continue;
    const Shape shape = Shape::at(h, row);
    const int label = class_of(h, h.sorted[row]);
    u64 bits = 0;
#pragma unroll 4
    for (int b = 0; b < 64; ++b) {
      const int i = column_word * 64 + b;
      const bool hit = classes[i] == label && shape.suppresses(others[i], threshold);
      bits |= (u64)hit << b;
    }
    if (group == other && column_word == word) bits &= (1ull << in_word) - 1;
    h.mask[(size_t)row * h.pitch + other * 4 + column_word] = bits;
  }
}

// Row t / 4 of a group, of which only words up to the row's own are in the mask.
__device__ __forceinline__ u64 word_in_group(const Head& h, int first, int count) {
  const int row = first + threadIdx.x / 4, word = threadIdx.x & 3;
  if (row >= count || word > (int)threadIdx.x / 256) return 0;
  return h.mask[(size_t)row * h.pitch + first / 64 + word];
}

__device__ __forceinline__ u64 whole(unsigned low, unsigned high) { return ((u64)high << 32) | low; }

// Decides the 256 candidates of a group in one warp, 64 at once: one is kept as soon as none is left
// that could suppress it, and dropped as soon as one is kept that does. Returns how many are kept.
__device__ __forceinline__ int decide(const u64 (*by)[GROUP], const u64* removed, int room, int* chosen) {
  const int lane = threadIdx.x & 31;
  const u64 low = 1ull << lane, high = low << 32;
  u64 keeps[4];
  int count = 0;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const int row = word * 64 + lane;
    bool dead_low = false, dead_high = false;
#pragma unroll
    for (int before = 0; before < word; ++before) {
      dead_low |= (by[before][row] & keeps[before]) != 0;
      dead_high |= (by[before][row + 32] & keeps[before]) != 0;
    }
    const u64 own_low = by[word][row], own_high = by[word][row + 32];
    u64 open = ~removed[word];
    open &= ~whole(__ballot_sync(EVERY, dead_low), __ballot_sync(EVERY, dead_high));
    u64 keep = 0;
    while (open) {
      const bool keep_low = (open & low) && !(own_low & open);
      const bool keep_high = (open & high) && !(own_high & open);
      const u64 now = whole(__ballot_sync(EVERY, keep_low), __ballot_sync(EVERY, keep_high));
      keep |= now;
      const bool drop_low = own_low & now, drop_high = own_high & now;
      open &= ~(now | whole(__ballot_sync(EVERY, drop_low), __ballot_sync(EVERY, drop_high)));
    }
    keeps[word] = keep;
    const int place_low = count + __popcll(keep & (low - 1));
    const int place_high = count + __popcll(keep & (high - 1));
    if ((keep & low) && place_low < room) chosen[place_low] = row;
    if ((keep & high) && place_high < room) chosen[place_high] = row + 32;
    count += __popcll(keep);
  }
  return min(count, room);
}

template <class T> __device__ __noinline__ void emit(const Head& h, int kept);

// One block of 1024 threads: decides group after group which candidates are kept, and what these
// suppress in later groups.
template <class T> __device__ __forceinline__ void reduce(const Head& h) {
  __shared__ u64 removed[TOP / 64];
  __shared__ u64 by[4][GROUP];
  __shared__ int chosen[GROUP];
  __shared__ int added;
  const int t = threadIdx.x, total = candidate_count(h), count = min(total, TOP);
  const int limit = detection_limit(h);
  int kept = 0;
  if (!h.uses_nms) {
    kept = min(count, limit);
  } else {
    const int words = (count + GROUP - 1) / GROUP * 4;
    for (int w = t; w < words; w += blockDim.x) {
      const int valid = count - w * 64;
      removed[w] = valid >= 64 ? 0 : valid <= 0 ? ~0ull : ~0ull << valid;
    }
    u64 next = word_in_group(h, 0, count);
    for (int first = 0; first < count && kept < limit; first += GROUP) {
      by[t & 3][t >> 2] = next;
      __syncthreads();
      // The next group's words arrive while this group is decided.
      next = word_in_group(h, first + GROUP, count);
      if (t < 32) {
        const int found = decide(by, removed + first / 64, limit - kept, chosen);
        if (t == 0) added = found;
      }
      __syncthreads();
      const int news = added, from = first / 64 + 4, width = words - from;
      if (t < news) h.kept[kept + t] = first + chosen[t];
#pragma unroll 4
      for (int i = t; i < news * width; i += blockDim.x) {
        const int w = from + i % width;
        const u64 bits = h.mask[(size_t)(first + chosen[i / width]) * h.pitch + w];
        unsigned* halves = (unsigned*)(removed + w);
        if ((unsigned)bits) atomicOr(halves, (unsigned)bits);
        if (bits >> 32) atomicOr(halves + 1, (unsigned)(bits >> 32));
      }
      kept += news;
      __syncthreads();
    }
  }
  if (h.uses_nms && h.places > TOP) {
    if (t == 0) h.counters->kept = kept;  // `rest_*` writes the result.
  } else {
    emit<T>(h, kept);
  }
}

// Scratch for the candidates that `filter_*` leaves: the mask, which has been read.
__device__ __forceinline__ int left_capacity(const Head& h) { return h.pitch * h.pitch * 64; }

// Appends the candidates after the best TOP that no kept box suppresses; many blocks of 256 threads.
template <class T, class Shape> __device__ __forceinline__ void filter(const Head& h) {
  const int total = candidate_count(h), kept = h.counters->kept, lane = threadIdx.x & 31;
  if (total <= TOP || kept >= detection_limit(h)) return;
  const u64 bound = h.counters->bound;
  const float threshold = h.request->iou_threshold;
  for (int first = blockIdx.x * 256; first < total; first += gridDim.x * 256) {
    const int i = first + threadIdx.x;
    const u64 key = i < total ? h.keys[i] : ~0ull;
    bool stays = key < bound;
    if (stays) {
      const Shape shape = Shape::template of<T>(h, row_of(h, key));
      const int label = class_of(h, key);
      for (int k = 0; stays && k < kept; ++k) {
        const int other = h.kept[k];
        stays = class_of(h, h.sorted[other]) != label
            || !Shape::at(h, other).suppresses(shape, threshold);
      }
    }
    const unsigned staying = __ballot_sync(EVERY, stays);
    if (!staying) continue;
    int place = 0;
    if (lane == 0) place = atomicAdd(&h.counters->left, __popc(staying));
    place = __shfl_sync(EVERY, place, 0) + __popc(staying & ((1u << lane) - 1u));
    if (stays && place < left_capacity(h)) h.mask[place] = key;
  }
}

__device__ __noinline__ void sort_descending(u64* keys, int length) {
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

// One block of 1024 threads, for what `filter_*` has left: 2048 candidates at a time are sorted, of
// which 64 at a time are compared with all boxes kept so far and with each other. Slow, but rarely any
// candidate is left.
template <class T, class Shape> __device__ __forceinline__ void rest(const Head& h) {
  __shared__ u64 keys[SORTED];
  __shared__ u64 rows[CHUNK];
  __shared__ int dead[CHUNK];
  __shared__ unsigned histogram[256];
  __shared__ u64 keeps;
  __shared__ int filled;
  const int t = threadIdx.x, limit = detection_limit(h);
  const float threshold = h.request->iou_threshold;
  int kept = h.counters->kept;
  const int left = h.counters->left;
  // Too many for the scratch memory: look at all again.
  const bool is_all = left > left_capacity(h);
  const u64* candidates = is_all ? h.keys : h.mask;
  const int total = is_all ? candidate_count(h) : left;
  u64 bound = is_all ? h.counters->bound : ~0ull;
  const int from = is_all ? TOP : 0;
  for (int seen = from; seen < total && kept < limit; seen += SORTED) {
    const int count = min(total - seen, SORTED);
    const u64 cut = total - seen > SORTED ? cut_below(candidates, total, bound, SORTED, histogram) : 0;
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
    for (int base = 0; base < count && kept < limit; base += CHUNK) {
      const int size = min(CHUNK, count - base);
      const int mine = t >> 4, part = t & 15;  // 16 threads per candidate.
      const bool inside = mine < size;
      const u64 key = inside ? keys[base + mine] : 0;
      const Shape shape = Shape::template of<T>(h, inside ? row_of(h, key) : 0);
      const int label = inside ? class_of(h, key) : -1;
      bool hit = false;
      for (int k = part; inside && k < kept && !hit; k += 16) {
        const int other = h.kept[k];
        hit = class_of(h, h.sorted[other]) == label && Shape::at(h, other).suppresses(shape, threshold);
      }
      const int sixteen = (mine & 1) * 16;
      const unsigned hits = (__ballot_sync(EVERY, hit) >> sixteen) & 0xffffu;
      u64 row = 0;
#pragma unroll 1
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int i = part + 16 * quarter;
        bool covers = inside && i > mine && i < size && class_of(h, keys[base + i]) == label;
        if (covers) {
          covers = shape.suppresses(Shape::template of<T>(h, row_of(h, keys[base + i])), threshold);
        }
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
          u64 removed = whole(low, high);
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
      const int place = kept + __popcll(alive & ((1ull << mine) - 1));
      if (part == 0 && (alive >> mine) & 1 && place < limit) {
        // Behind the sorted candidates, each at its place among the kept ones.
        h.kept[place] = TOP + place;
        h.sorted[TOP + place] = key;
        h.boxes_sorted[TOP + place] = shape.corners();
        if (h.form == ROTATED) h.shapes_sorted[TOP + place] = shape.shape();
      }
      kept = min(kept + __popcll(alive), limit);
      __syncthreads();
    }
    __syncthreads();
  }
  emit<T>(h, kept);
}

// Writes the kept boxes, best first, and the header, and resets the counters. The last to run.
template <class T> __device__ __noinline__ void emit(const Head& h, int kept) {
  unsigned char* out = h.result;
  float4* out_boxes = (float4*)(out + sizeof(Result));
  float* out_scores = (float*)(out_boxes + h.capacity);
  int* out_labels = (int*)(out_scores + h.capacity);
  float* out_extras = (float*)(out_labels + h.capacity);
  __syncthreads();  // The block's own writes to scratch memory.
  for (int i = threadIdx.x; i < kept; i += blockDim.x) {
    const int place = h.uses_nms ? h.kept[i] : i;
    const u64 key = h.sorted[place];
    const float4 box = h.boxes_sorted[place];
    if (h.form == ROTATED) {
      const Oriented o = oriented_in_image(h, {box.x, box.y, box.z, box.w}, h.shapes_sorted[place].w);
      out_boxes[i] = make_float4(o.x, o.y, o.w, o.h);
      out_extras[i] = o.theta;
    } else {
      const Box b = in_image(h, {box.x, box.y, box.z, box.w});
      out_boxes[i] = make_float4(b.x1, b.y1, b.x2, b.y2);
    }
    out_scores[i] = score_of(key);
    out_labels[i] = h.label_kind ? label_at<T>(h, row_of(h, key)) : class_of(h, key) - h.background;
  }
  if (h.extra_kind == KEYPOINTS_2 || h.extra_kind == KEYPOINTS_3) {
    const int values = h.extra_kind, points = h.extra_count / values;
    for (int i = threadIdx.x; i < kept * points; i += blockDim.x) {
      const int row = row_of(h, h.sorted[h.uses_nms ? h.kept[i / points] : i / points]);
      const int k = i % points * values;
      const float x = (extra_of<T>(h, row, k) - h.pad_x) / h.scale_x;
      const float y = (extra_of<T>(h, row, k + 1) - h.pad_y) / h.scale_y;
      const float seen = values == 3 ? extra_of<T>(h, row, k + 2) : 1.f;
      const bool is_valid = is_finite(x) && is_finite(y) && is_finite(seen);
      out_extras[3 * i] = is_valid ? x : 0.f;  // Not visible.
      out_extras[3 * i + 1] = is_valid ? y : 0.f;
      out_extras[3 * i + 2] = is_valid ? seen : 0.f;
    }
  }
  const Counters counted = *h.counters;
  __syncthreads();  // All threads have read the counters.
  if (threadIdx.x == 0) {
    *h.counters = {};
    *(Result*)out = {kept, counted.candidates, counted.nonfinite, 0};
  }
}
