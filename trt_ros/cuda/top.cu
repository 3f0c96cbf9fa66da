// The best TOP of the candidates, where there are more.

const int TOP = 10240;        // Candidates sorted and compared at once.
const int DIGITS = 2048;      // Values of a digit of a key in `narrow`.

__device__ __forceinline__ int candidate_count(const Head& h) {
  return min(h.counters->candidates, h.places);
}
__device__ __forceinline__ int detection_limit(const Head& h) {
  return min(max(h.request->max_detections, 0), h.capacity);
}
// Candidates that are compared at once; without NMS, no more than the network finds boxes.
__device__ __forceinline__ int compared_count(const Head& h) {
  return min(candidate_count(h), h.uses_nms ? TOP : h.capacity);
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
__device__ __forceinline__ void cut_at_once(const Head& h) {
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
__device__ __forceinline__ void narrow_bound(const Head& h) {
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
__device__ __forceinline__ void gather_best(const Head& h) {
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
