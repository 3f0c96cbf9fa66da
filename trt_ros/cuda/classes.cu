// Scores of a classifier.

struct Classes {
  const void* scores;  // `count` of each row; one block per row.
  Result* result;   // Host memory that the GPU can write; `count` stays 0.
  float* target;    // Likewise.
  int count, stride;  // Bytes from the result and target of a row to those of the next.
};

// Reductions over a block of 1024 threads; all threads get the result.
__device__ __forceinline__ float sum_of(float value, float* warps) {
  for (int apart = 16; apart; apart /= 2) value += __shfl_xor_sync(EVERY, value, apart);
  __syncthreads();  // The previous reduction has been read.
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = warps[threadIdx.x & 31];
  for (int apart = 16; apart; apart /= 2) value += __shfl_xor_sync(EVERY, value, apart);
  return value;
}
__device__ __forceinline__ float highest_of(float value, float* warps) {
  for (int apart = 16; apart; apart /= 2) value = fmaxf(value, __shfl_xor_sync(EVERY, value, apart));
  __syncthreads();
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = warps[threadIdx.x & 31];
  for (int apart = 16; apart; apart /= 2) value = fmaxf(value, __shfl_xor_sync(EVERY, value, apart));
  return value;
}

// A block of 1024 threads per row: softmax, unless the scores are probabilities; see
// families/vectors.py.
template <class T> __device__ __forceinline__ void classify(const Classes& c) {
  __shared__ float warps[32];
  const size_t first = (size_t)blockIdx.x * c.count, skip = (size_t)blockIdx.x * c.stride;
  float* const target = (float*)((char*)c.target + skip);
  float highest = -INFINITE, lowest = INFINITE, total = 0.f;
  int bad = 0;
  for (int i = threadIdx.x; i < c.count; i += blockDim.x) {
    const float score = T::at(c.scores, first + i);
    if (!is_finite(score)) {
      ++bad;
      continue;
    }
    highest = fmaxf(highest, score);
    lowest = fminf(lowest, score);
    total += score;
  }
  const int all_bad = (int)sum_of((float)bad, warps);
  total = sum_of(total, warps);
  highest = highest_of(highest, warps);
  lowest = -highest_of(-lowest, warps);
  if (!all_bad && lowest >= 0.f && fabsf(total - 1.f) < 0.01f) {
    for (int i = threadIdx.x; i < c.count; i += blockDim.x) {
      target[i] = fminf(T::at(c.scores, first + i), 1.f);  // Rounding.
    }
  } else {
    float powers = 0.f;
    for (int i = threadIdx.x; i < c.count; i += blockDim.x) {
      const float score = T::at(c.scores, first + i);
      if (is_finite(score)) powers += expf(score - highest);
    }
    powers = sum_of(powers, warps);
    for (int i = threadIdx.x; i < c.count; i += blockDim.x) {
      const float score = T::at(c.scores, first + i);
      target[i] = is_finite(score) ? expf(score - highest) / powers : 0.f;
    }
  }
  if (threadIdx.x == 0) *(Result*)((char*)c.result + skip) = {0, 0, all_bad, 0};
}

// A block of 1024 threads per step of a row: its best symbol; see families/text.py.
struct Step {
  float score;
  int symbol, bad;  // Bad: scores that are not finite.
};
template <class T> __device__ __forceinline__ void read_text(const Classes& c) {
  __shared__ float warps[32];
  const size_t first = ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * c.count;
  float highest = -INFINITE, lowest = INFINITE, total = 0.f, powers = 0.f;
  int bad = 0, best = 0;
  for (int i = threadIdx.x; i < c.count; i += blockDim.x) {
    const float score = T::at(c.scores, first + i);
    if (!is_finite(score)) {
      ++bad;
      continue;
    }
    if (score > highest) highest = score, best = i;
    lowest = fminf(lowest, score);
    total += score;
  }
  const float own = highest;
  bad = (int)sum_of((float)bad, warps);
  total = sum_of(total, warps);
  highest = highest_of(highest, warps);
  lowest = -highest_of(-lowest, warps);
  // The first among equals; float holds all numbers of symbols.
  best = (int)-highest_of(own == highest && highest > -INFINITE ? -(float)best : -INFINITE, warps);
  const bool is_final = !bad && lowest >= 0.f && fabsf(total - 1.f) < 0.01f;
  if (!is_final) {
    for (int i = threadIdx.x; i < c.count; i += blockDim.x) {
      const float score = T::at(c.scores, first + i);
      if (is_finite(score)) powers += expf(score - highest);
    }
    powers = sum_of(powers, warps);
  }
  if (threadIdx.x == 0) {
    Step* const steps = (Step*)((char*)c.target + (size_t)blockIdx.y * c.stride);
    const bool is_known = highest > -INFINITE;
    steps[blockIdx.x] = {!is_known ? 0.f : is_final ? fminf(highest, 1.f) : 1.f / powers, is_known ? best : 0, bad};
  }
}
