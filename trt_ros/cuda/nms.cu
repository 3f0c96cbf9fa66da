// Non-maximum suppression: `rank_*` (rank.cu) sorts the candidates, `mask_*` compares all of them with each other
// and `reduce_*` keeps the best, without a wait for the host between them. These see the best TOP
// candidates. If there are more, `cut_*` or `narrow` and `gather` find the best TOP before, `filter_*`
// drops those of the others that a kept box suppresses, and `rest_*` goes on with what is left.

const int GROUP = 512;        // Candidates that `reduce_*` decides at once.
const int COLUMNS = 256;      // Of them, those that a block of `mask_*` compares with others at once.
const int WORDS = GROUP / 64;
const int SORTED = 2048;      // Candidates that `rest_*` sorts at once.
const int CHUNK = 64;         // Candidates that `rest_*` decides at once.

__device__ __forceinline__ u64 whole(unsigned low, unsigned high) { return ((u64)high << 32) | low; }

// Bit b: a shape suppresses shape b of 32 others of its class.
template <class Shape> __device__ __noinline__ unsigned exact_hits(
    const Shape& shape, int label, const Shape* others, const int* classes, float threshold) {
  unsigned found = 0;
#pragma unroll 4
  for (int b = 0; b < 32; ++b) {
    const bool hit = classes[b] == label && shape.suppresses(others[b], threshold);
    found = found >> 1 | (hit ? 1u << 31 : 0u);
  }
  return found;
}

__device__ __forceinline__ unsigned hits(
    const Rotated& shape, int label, const Rotated* others, const int* classes, const Limit& limit) {
  return exact_hits(shape, label, others, classes, limit.threshold);
}

__device__ __forceinline__ unsigned hits(
    const Upright& shape, int label, const Upright* others, const int* classes, const Limit& limit) {
  unsigned found = 0;
  bool is_unsure = false;
#pragma unroll
  for (int b = 0; b < 32; ++b) {
    const Verdict verdict = shape.compare(others[b], limit);
    if (verdict.suppresses & (classes[b] == label)) found |= 1u << b;
    is_unsure |= verdict.is_unsure;
  }
  return is_unsure ? exact_hits(shape, label, others, classes, limit.threshold) : found;
}

// Compares 64 candidates with COLUMNS others: bit b of word w in row r is set where candidate r suppresses
// candidate 64 * w + b, a worse one. Among those of one group it is set where r is suppressed by that
// candidate, a better one. Blocks of 256 threads.
template <class Shape> __device__ __forceinline__ void mask(const Head& h) {
  __shared__ Shape others[COLUMNS];
  __shared__ int classes[COLUMNS];
  if (!suppresses(h)) return;
  const int t = threadIdx.x, count = compared_count(h);
  const int groups = (count + GROUP - 1) / GROUP, parts = GROUP / COLUMNS;
  const unsigned together = group_count(h);
  const Limit limit(h.request->iou_threshold);
  // Group s is compared with s and all after it. Groups s and groups - 1 - s together make a line.
  const int tiles = (groups + 1) / 2 * (groups + 1) * WORDS * parts;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int word = tile % WORDS, part = tile / WORDS % parts, pair = tile / (WORDS * parts);
    const int line = pair / (groups + 1), column = pair % (groups + 1);
    const bool is_second = column >= groups - line;
    if (is_second && groups - 1 - line == line) continue;
    const int group = is_second ? groups - 1 - line : line;
    const int other = is_second ? column - 1 : group + column;
    const int first = group * GROUP + word * 64, others_first = other * GROUP + part * COLUMNS;
    if (first >= count || (group == other && others_first > first)) continue;
    __syncthreads();  // The previous tile has been read.
    const int loaded = others_first + t;
    classes[t] = -1;
    if (loaded < count) {
      others[t] = Shape::at(h, loaded);
      classes[t] = group_of(h.sorted[loaded], together);
    }
    __syncthreads();
    const int in_word = t & 63, column_word = t >> 6, row = first + in_word;
    if (row >= count || (group == other && others_first + column_word * 64 > first)) continue;
    const Shape shape = Shape::at(h, row);
    const int label = group_of(h.sorted[row], together);
    unsigned halves[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int begin = column_word * 64 + half * 32;
      halves[half] = hits(shape, label, others + begin, classes + begin, limit);
    }
    u64 bits = whole(halves[0], halves[1]);
    if (others_first + column_word * 64 == first) bits &= (1ull << in_word) - 1;
    h.mask[(size_t)row * h.pitch + others_first / 64 + column_word] = bits;
  }
}

// The better candidates of its group that suppress candidate first + threadIdx.x.
struct Suppressors { u64 words[WORDS]; };

__device__ __forceinline__ Suppressors suppressors(const Head& h, int first, int count) {
  Suppressors found = {};
  const int row = first + (int)threadIdx.x;
  if (row >= count) return found;
  const u64* from = h.mask + (size_t)row * h.pitch + first / 64;
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
    if (w <= (int)threadIdx.x / 64) found.words[w] = from[w];
  }
  return found;
}

// Decides the candidates of a group, one per thread of the block: one is dropped as soon as one is kept
// that suppresses it, and kept as soon as none is left that could. `open` are those not suppressed by
// earlier groups; it becomes those kept.
__device__ __forceinline__ void decide(const Suppressors& by, u64* open, uint2 (*votes)[GROUP / 32]) {
  const int t = threadIdx.x;
  u64 keep[WORDS] = {};
  bool is_open = false;
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
    if (w == t / 64) is_open = (open[w] >> (t & 63)) & 1;
  }
  for (int round = 0;; round ^= 1) {
    u64 is_kept = 0, may_be = 0, undecided = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
      is_kept |= by.words[w] & keep[w];
      may_be |= by.words[w] & open[w];
      undecided |= open[w];
    }
    if (!undecided) break;  // The same in all threads.
    const bool drops = is_open && is_kept, keeps = is_open && !is_kept && !may_be;
    const unsigned dropping = __ballot_sync(EVERY, drops), keeping = __ballot_sync(EVERY, keeps);
    is_open = is_open && !drops && !keeps;
    // Two arrays in turn: this one is read until the next barrier.
    if ((t & 31) == 0) votes[round][t / 32] = {dropping, keeping};
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
      const uint2 low = votes[round][2 * w], high = votes[round][2 * w + 1];
      const u64 kept = whole(low.y, high.y);
      keep[w] |= kept;
      open[w] &= ~(kept | whole(low.x, high.x));
    }
  }
#pragma unroll
  for (int w = 0; w < WORDS; ++w) open[w] = keep[w];
}

// One block of GROUP threads: decides group after group which candidates are kept, and what these
// suppress in later groups.
template <class T> __device__ __forceinline__ void reduce(const Head& h) {
  const int LANE_WORDS = TOP / 64 / 32;
  __shared__ u64 removed[TOP / 64];
  __shared__ uint2 votes[2][GROUP / 32];
  __shared__ int chosen[GROUP];
  const int t = threadIdx.x, lane = t & 31, count = compared_count(h), limit = detection_limit(h);
  int kept = 0;
  if (!suppresses(h)) {
    kept = min(count, limit);
  } else {
    const int words = (count + GROUP - 1) / GROUP * WORDS;
    for (int w = t; w < words; w += GROUP) {
      const int valid = count - w * 64;
      removed[w] = valid >= 64 ? 0 : valid <= 0 ? ~0ull : ~0ull << valid;
    }
    Suppressors next = suppressors(h, 0, count);
    int loaded = 0;
    __syncthreads();
    for (int first = 0; first < count && kept < limit; first += GROUP) {
      u64 keep[WORDS], any = 0;
#pragma unroll
      for (int w = 0; w < WORDS; ++w) any |= keep[w] = ~removed[first / 64 + w];
      if (!any) continue;
      const Suppressors by = loaded == first ? next : suppressors(h, first, count);
      // The next group's words arrive while this group is decided.
      loaded = first + GROUP;
      next = suppressors(h, loaded, count);
      decide(by, keep, votes);
      int place = 0, news = 0;
      bool is_kept = false;
#pragma unroll
      for (int w = 0; w < WORDS; ++w) {
        if (w < t / 64) place += __popcll(keep[w]);
        if (w == t / 64) {
          is_kept = (keep[w] >> (t & 63)) & 1;
          place += __popcll(keep[w] & ((1ull << (t & 63)) - 1));
        }
        news += __popcll(keep[w]);
      }
      news = min(news, limit - kept);
      if (is_kept && place < news) {
        chosen[place] = first + t;
        h.kept[kept + place] = first + t;
      }
      __syncthreads();
      // Each warp takes some of the kept rows, each lane some of their words.
      const int from = first / 64 + WORDS + lane;
      u64 bits[LANE_WORDS] = {};
#pragma unroll 2
      for (int i = t / 32; i < news; i += GROUP / 32) {
        const u64* row = h.mask + (size_t)chosen[i] * h.pitch;
#pragma unroll
        for (int k = 0; k < LANE_WORDS; ++k) {
          if (from + 32 * k < words) bits[k] |= row[from + 32 * k];
        }
      }
#pragma unroll
      for (int k = 0; k < LANE_WORDS; ++k) {
        unsigned* halves = (unsigned*)(removed + from + 32 * k);
        if ((unsigned)bits[k]) atomicOr(halves, (unsigned)bits[k]);
        if (bits[k] >> 32) atomicOr(halves + 1, (unsigned)(bits[k] >> 32));
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
  const unsigned together = group_count(h);
  const float threshold = h.request->iou_threshold;
  for (int first = blockIdx.x * 256; first < total; first += gridDim.x * 256) {
    const int i = first + threadIdx.x;
    const u64 key = i < total ? h.keys[i] : ~0ull;
    bool stays = key < bound;
    if (stays) {
      const Shape shape = Shape::template of<T>(h, row_of(h, key));
      const int label = group_of(key, together);
      for (int k = 0; stays && k < kept; ++k) {
        const int other = h.kept[k];
        stays = group_of(h.sorted[other], together) != label
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
  const unsigned together = group_count(h);
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
      const int label = inside ? group_of(key, together) : -1;
      bool hit = false;
      for (int k = part; inside && k < kept && !hit; k += 16) {
        const int other = h.kept[k];
        hit = group_of(h.sorted[other], together) == label && Shape::at(h, other).suppresses(shape, threshold);
      }
      const int sixteen = (mine & 1) * 16;
      const unsigned hits = (__ballot_sync(EVERY, hit) >> sixteen) & 0xffffu;
      u64 row = 0;
#pragma unroll 1
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int i = part + 16 * quarter;
        bool covers = inside && i > mine && i < size && group_of(keys[base + i], together) == label;
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
