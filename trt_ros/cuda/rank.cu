// The best candidates in the order of their keys, with their shapes: `rank_*`.

const int SAMPLES = 256;      // Keys by which `rank_*` divides many candidates among its blocks.
const int BUCKET = 1024;      // Keys that a block of `rank_*` orders at once.

// Adds to places[c] how many of `count` keys in shared memory are above key c. Threads of a block share
// the work: warps of the same keys compare them with another part of all.
__device__ __forceinline__ void add_places(const u64* keys, int count, int* places) {
  int width = 32;
  while (width < count) width *= 2;
  const int mine = threadIdx.x & (width - 1), parts = blockDim.x / width;
  const u64 key = mine < count ? keys[mine] : 0;
  int above = 0;
#pragma unroll 4
  for (int i = threadIdx.x / width; i < count; i += parts) above += keys[i] > key;
  if (mine < count) atomicAdd(places + mine, above);
}

template <class T, class Shape> __device__ __forceinline__ void put(const Head& h, u64 key, int place) {
  h.sorted[place] = key;
  const Shape shape = Shape::template of<T>(h, row_of(h, key));
  h.boxes_sorted[place] = shape.corners();
  if (h.form == ROTATED) h.shapes_sorted[place] = shape.shape();
}

// Orders up to BUCKET candidates in blocks of 64: each counts the keys above its own.
template <class T, class Shape> __device__ __forceinline__ void rank_few(
    const Head& h, const u64* all, int count, u64* keys, int* places) {
  const int t = threadIdx.x, first = blockIdx.x * 64;
  if (t < count) keys[t] = all[t];
  if (t < 64) places[t] = 0;
  __syncthreads();
  const int mine = first + (t & 63);
  const u64 key = mine < count ? keys[mine] : 0;
  int above = 0;
#pragma unroll 4
  for (int i = t >> 6; i < count; i += 16) above += keys[i] > key;
  atomicAdd(places + (t & 63), above);
  __syncthreads();
  if (t < 64 && mine < count) put<T, Shape>(h, key, places[t]);
}

// Sorts the candidates. Blocks of 1024 threads. Of few, each block ranks 64. Many are divided by keys: a
// block takes those between two keys of a sample, about 64, and counts the keys above them all.
template <class T, class Shape> __device__ __forceinline__ void rank(const Head& h) {
  __shared__ u64 keys[BUCKET];
  __shared__ int places[BUCKET];
  __shared__ unsigned histogram[256];
  __shared__ u64 bounds[2];
  __shared__ int above, inside, filled;
  const int t = threadIdx.x, total = candidate_count(h), count = min(total, TOP);
  const int blocks = (count + 63) / 64, block = blockIdx.x;
  if (block >= blocks) return;
  const u64* all = total > TOP ? h.top : h.keys;
  if (count <= BUCKET) {
    rank_few<T, Shape>(h, all, count, keys, places);
    return;
  }
  const int samples = min(2 * blocks, SAMPLES);
  if (t < samples) {
    keys[t] = all[t * count / samples];
    places[t] = 0;
  }
  if (t == 0) {
    bounds[0] = 0;
    bounds[1] = ~0ull;
    above = inside = 0;
  }
  __syncthreads();
  add_places(keys, samples, places);
  __syncthreads();
  if (t < samples) {
    if (places[t] + 1 == (block + 1) * samples / blocks && block + 1 < blocks) bounds[0] = keys[t];
    if (places[t] + 1 == block * samples / blocks) bounds[1] = keys[t];
  }
  __syncthreads();
  const u64 lower = bounds[0];
  u64 upper = bounds[1];
  int higher = 0;
#pragma unroll 4
  for (int i = t; i < count; i += 1024) {
    const u64 key = __ldg(all + i);
    higher += key >= upper;
    if (key >= lower && key < upper) {
      const int place = atomicAdd(&inside, 1);
      if (place < BUCKET) keys[place] = key;
    }
  }
  for (int apart = 16; apart; apart /= 2) higher += __shfl_xor_sync(EVERY, higher, apart);
  if ((t & 31) == 0) atomicAdd(&above, higher);
  __syncthreads();
  int left = inside, base = above;
  const bool fits = left <= BUCKET;
  while (left > 0) {
    const int size = min(left, BUCKET);
    if (!fits) {  // The sample was odd: the best BUCKET of those that are left.
      const u64 cut = left > BUCKET ? cut_below(all, count, upper, BUCKET, histogram) : lower;
      if (t == 0) filled = 0;
      __syncthreads();
      for (int i = t; i < count; i += 1024) {
        const u64 key = all[i];
        if (key >= cut && key < upper) keys[atomicAdd(&filled, 1)] = key;
      }
      upper = cut;
    }
    places[t] = 0;
    __syncthreads();
    add_places(keys, size, places);
    __syncthreads();
    if (t < size) put<T, Shape>(h, keys[t], base + places[t]);
    base += size;
    left -= size;
    __syncthreads();
  }
}
