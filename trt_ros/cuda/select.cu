// Candidates of boxes: `select_*` collects those above the score threshold.

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
    bad = count_nonfinite<T>(h, row, slice, 8);
    const void* values = h.levels[0].scores;
#pragma unroll 10
    for (int c = slice; c < h.classes; c += 8) {
      const float v = T::at(values, (size_t)row + (size_t)c * h.score_column);
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

const int AT_ONCE = 4;  // Scores that a thread of `select_rows` reads before it looks at one.

// The best class per row, best for classes contiguous in memory: one warp per row, its lanes split the classes.
template <class T> __device__ __forceinline__ void select_rows(const Head& h) {
  const int lane = threadIdx.x;
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= h.rows) return;
  const int level = level_of<T>(h, row), inside = row - h.levels[level].first;
  const void* values = h.levels[level].scores;
  const size_t base = (size_t)inside * h.score_row;
  const int entries = h.classes + (h.activation == SOFTMAX);
  float best = -INFINITE, highest = -INFINITE;
  int label = 0;
  bool spoiled = false, bad = count_nonfinite<T>(h, row, lane, 32);
  const void* factors = h.levels[level].objectness;
  float objectness = factors ? T::at(factors, (size_t)inside * h.objectness_row) : 1.f;
  for (int first = lane; first < entries; first += 32 * AT_ONCE) {
    float read[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      read[i] = T::at(values, base + (size_t)min(first + 32 * i, entries - 1) * h.score_column);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int c = min(first + 32 * i, entries - 1);
      const float v = read[i];
      bad |= !is_finite(v);
      spoiled |= !(v <= LARGEST);
      highest = fmaxf(highest, v);
      if (v > best && c < h.classes) { best = v; label = c; }
    }
  }
  if (spoiled) best = INFINITE;
  for (int apart = 16; apart; apart /= 2) {
    const float v = __shfl_xor_sync(EVERY, best, apart);
    const int c = __shfl_xor_sync(EVERY, label, apart);
    if (v > best || (v == best && c < label)) { best = v; label = c; }
  }
  float score = best;
  if (h.activation == SOFTMAX) {
    for (int apart = 16; apart; apart /= 2) highest = fmaxf(highest, __shfl_xor_sync(EVERY, highest, apart));
    float sum = 0.f;
    for (int c = lane; c < entries; c += 32) sum += expf(T::at(values, base + (size_t)c * h.score_column) - highest);
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(EVERY, sum, apart);
    score = is_finite(best) ? expf(best - highest) / sum : best;
  }
  if (h.activation == SIGMOID && is_finite(score)) score = sigmoid(score);
  if (factors) {
    bad |= lane == 4 && !is_finite(objectness);
    if (h.activation == SIGMOID && is_finite(objectness)) objectness = sigmoid(objectness);
    if (h.limits_objectness && is_finite(objectness)) objectness = fminf(fmaxf(objectness, 0.f), 1.f);
    score = objectness * (h.class_power == 1.f ? score : powf(score, h.class_power));
    if (h.power != 1.f) score = h.power == 0.5f ? sqrtf(score) : powf(score, h.power);
  }
  const int any_bad = __popc(__ballot_sync(EVERY, bad));
  bool pass = is_finite(score) && score >= min_score(h.request, label);
  if (pass) pass = is_usable<T>(h, row);
  if (lane == 0 && any_bad) atomicAdd(&h.counters->nonfinite, any_bad);
  append(h, pass && lane == 0, key_of(score, (unsigned)row * h.classes + label));
}

// The number of valid rows from `count`.
template <class T> __device__ __forceinline__ int valid_rows(const Head& h) {
  if (h.count_kind != SCORES) return integer_at(h.count, h.count_kind, 0);
  const float count = T::at(h.count, 0);  // NaN: none.
  return count > 0.f ? (int)fminf(count, (float)h.rows) : 0;
}

// Whether no score of the 3 x 3 cells around that of a row, in its plane, is higher.
template <class T> __device__ __noinline__ bool is_highest(const Head& h, int cell, int c, float score) {
  const int wide = h.levels[0].across, tall = h.levels[0].cells / wide, x = cell % wide, y = cell / wide;
  bool found = true;
  for (int j = max(y - 1, 0); j <= min(y + 1, tall - 1); ++j) {
    for (int i = max(x - 1, 0); i <= min(x + 1, wide - 1); ++i) {
      const size_t at = (size_t)(j * wide + i) * h.score_row + (size_t)c * h.score_column;
      found &= !(T::at(h.levels[0].scores, at) > score);
    }
  }
  return found;
}

// Finds out whether scores are logits: whether any is below 0. Blocks of 256 threads.
template <class T> __device__ __forceinline__ void find_logits(const Head& h) {
  bool found = false;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < h.places; i += gridDim.x * 256) {
    found |= T::at(h.levels[0].scores, i) < 0.f;
  }
  if (__syncthreads_or(found) && threadIdx.x == 0) h.counters->are_logits = 1;
}

const int EACH = 4;  // Scores per thread of `select_each_*`.

// Every score is a candidate of its own. A block of 32 x 8 threads adds to the counters once.
template <class T> __device__ __forceinline__ void select_each(const Head& h) {
  __shared__ int passed[8], wrong[8], first;
  const int lane = threadIdx.x, warp = threadIdx.y;
  int rows = h.rows;
  if (h.count) rows = min(rows, valid_rows<T>(h));
  const bool is_sigmoid =
      h.activation == SIGMOID || (T::is_anchored && h.activation == MAYBE_SIGMOID && h.counters->are_logits);
  u64 keys[EACH];
  unsigned passing[EACH];
  int bad = 0, before = 0;
  for (int i = 0; i < EACH; ++i) {
    const unsigned place = ((unsigned)blockIdx.x * EACH + i) * 256 + warp * 32 + lane;
    const int row = place / h.classes, c = place - row * h.classes;
    const bool is_own = T::is_anchored && h.row_classes == 1;  // A box per class.
    const int box = is_own ? (int)place : row;
    bool pass = false;
    float score = 0.f;
    if (row < rows) {
      const int level = level_of<T>(h, row);
      const size_t at = (size_t)(row - h.levels[level].first) * h.score_row + (size_t)c * h.score_column;
      score = T::at(h.levels[level].scores, at);
      bad += !is_finite(score);
      if (T::is_anchored && !is_own) bad += count_nonfinite<T>(h, row, c, h.classes);
      if (!T::is_anchored ? c == 0 : is_own) bad += count_nonfinite<T>(h, box, 0, 1);
      pass = is_finite(score);
      const float raw = score;
      if (is_sigmoid) score = sigmoid(score);
      const int label = pass && h.label_kind ? label_at<T>(h, row) : c;
      if (pass) pass = label >= 0 && score >= min_score(h.request, label);
      if (T::is_anchored && h.is_peak && pass) pass = is_highest<T>(h, row, c, raw);
      if (pass) pass = is_usable<T>(h, box);
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
