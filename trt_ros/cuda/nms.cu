// Non-maximum suppression: `rank_*` sorts the candidates, `mask_*` compares all of them with each other
// and `reduce_*` keeps the best, without a wait for the host between them. These see the best TOP
// candidates. If there are more, `cut_*` or `narrow` and `gather` find the best TOP before, `filter_*`
// drops those of the others that a kept box suppresses, and `rest_*` goes on with what is left.

const int GROUP = 256;        // Candidates that `reduce_*` decides at once.
const int SORTED = 2048;      // Candidates that `rest_*` sorts at once.
const int CHUNK = 64;         // Candidates that `rest_*` decides at once.

const int PARTS = 32;         // Warps of `rank_*`.

// Sorts by counting, for each candidate, the keys above its own. A block of 32 x PARTS threads ranks 64
// candidates; each of its warps compares them with its part of all.
template <class T, class Shape> __device__ __forceinline__ void rank(const Head& h) {
  __shared__ int above[PARTS][64];
  const int lane = threadIdx.x, part = threadIdx.y, first = blockIdx.x * 64;
  const int total = candidate_count(h), count = min(total, TOP);
  if (first >= count) return;
  const u64* keys = total > TOP ? h.top : h.keys;
  const u64 upper = first + lane < count ? keys[first + lane] : 0;
  const u64 lower = first + lane + 32 < count ? keys[first + lane + 32] : 0;
  const ulonglong2* pairs = (const ulonglong2*)keys;
  int a = 0, b = 0;
#pragma unroll 4
  for (int i = part; i < count / 2; i += PARTS) {
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
  for (int p = 0; p < PARTS; ++p) place += above[p][mine];
  const u64 key = keys[first + mine];
  h.sorted[place] = key;
  const Shape shape = Shape::template of<T>(h, row_of(h, key));
  h.boxes_sorted[place] = shape.corners();
  if (h.form == ROTATED) h.shapes_sorted[place] = shape.shape();
}

__device__ __forceinline__ u64 whole(unsigned low, unsigned high) { return ((u64)high << 32) | low; }

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
    unsigned halves[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned hits = 0;
#pragma unroll 4
      for (int b = 0; b < 32; ++b) {
        const int i = column_word * 64 + half * 32 + b;
        const bool hit = classes[i] == label && shape.suppresses(others[i], threshold);
        hits = hits >> 1 | (hit ? 1u << 31 : 0u);
      }
      halves[half] = hits;
    }
    u64 bits = whole(halves[0], halves[1]);
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
    int loaded = 0;
    __syncthreads();
    for (int first = 0; first < count && kept < limit; first += GROUP) {
      const u64* gone = removed + first / 64;
      if ((gone[0] & gone[1] & gone[2] & gone[3]) == ~0ull) continue;
      by[t & 3][t >> 2] = loaded == first ? next : word_in_group(h, first, count);
      __syncthreads();
      // The next group's words arrive while this group is decided.
      loaded = first + GROUP;
      next = word_in_group(h, loaded, count);
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
