// Scores of classes from queries that have a class and a mask each, see families/maskformer.py: the sum of
// probability times sigmoid(mask). `argmax_*` reads them.

struct Queries {
  const void *logits, *masks;     // (queries, classes + 1), (queries, cells).
  Counters* counters;
  float *probabilities, *scores;  // Scratch: (queries, classes), (classes, cells).
  int queries, classes, cells;
};

// Blocks of 256 threads, a warp per query.
template <class T> __device__ __forceinline__ void weigh_queries(const Queries& a) {
  const int query = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31, entries = a.classes + 1;
  if (query >= a.queries) return;
  const size_t first = (size_t)query * entries;
  bool is_spoiled;
  int bad = 0;
  const Peak best = best_logit<T>(a.logits, first, entries, 1, is_spoiled, bad);
  float sum = 0.f;
  for (int c = lane; c < entries; c += 32) sum += expf(T::at(a.logits, first + c) - best.value);
  sum = total_of(sum);
  for (int c = lane; c < a.classes; c += 32) {
    a.probabilities[(size_t)query * a.classes + c] =
        is_spoiled ? 0.f : expf(T::at(a.logits, first + c) - best.value) / sum;
  }
  bad = total_of(bad);
  if (bad && lane == 0) atomicAdd(&a.counters->nonfinite, bad);
}

const int SUM_TILE = 64, SUM_DEPTH = 16;  // Cells and classes of a block; queries that it reads at once.

// Blocks of 256 threads, which have 4 x 4 sums each.
template <class T> __device__ __forceinline__ void sum_queries(const Queries& a) {
  __shared__ float shares[SUM_DEPTH][SUM_TILE], weights[SUM_DEPTH][SUM_TILE];
  const int t = threadIdx.x, cell = blockIdx.x * SUM_TILE, label = blockIdx.y * SUM_TILE;
  float sums[4][4] = {};
  int bad = 0;
  for (int first = 0; first < a.queries; first += SUM_DEPTH) {
    for (int i = t; i < SUM_DEPTH * SUM_TILE; i += 256) {
      const int query = first + i / SUM_TILE, x = cell + i % SUM_TILE, c = label + i % SUM_TILE;
      const bool is_there = query < a.queries;
      float value = -INFINITE;
      if (is_there && x < a.cells) {
        value = T::at(a.masks, (size_t)query * a.cells + x);
        bad += blockIdx.y == 0 && !is_finite(value);
      }
      shares[i / SUM_TILE][i % SUM_TILE] = 1.f / (1.f + expf(-value));
      weights[i / SUM_TILE][i % SUM_TILE] =
          is_there && c < a.classes ? a.probabilities[(size_t)query * a.classes + c] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < SUM_DEPTH; ++q) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        sums[i / 4][i % 4] += weights[q][t / 16 + 16 * (i / 4)] * shares[q][t % 16 + 16 * (i % 4)];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 16; ++i) {
    const int c = label + t / 16 + 16 * (i / 4), x = cell + t % 16 + 16 * (i % 4);
    if (c < a.classes && x < a.cells) a.scores[(size_t)c * a.cells + x] = sums[i / 4][i % 4];
  }
  bad = total_of(bad);
  if (bad && (t & 31) == 0) atomicAdd(&a.counters->nonfinite, bad);
}
