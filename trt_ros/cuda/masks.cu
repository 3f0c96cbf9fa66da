// Masks of instances: after `reduce_*`, `paint_*` decides for each image pixel which object is on top,
// and `keep_*` copies the prototypes, from which the host computes single masks where they are needed.
// Without coefficients each row has a plane of its own, whose values above 0 are its mask, beyond its box, too.

const int TILE_WIDTH = 64, TILE_HEIGHT = 32;  // Pixels per block of 256 threads.
const int TILE_CELLS = 2304;                  // Cells under a tile, where each is computed once.
const int COEFFICIENTS_MAX = 256;

struct Masks {
  const void *prototypes, *coefficients;  // (channels, lines, cells); coefficients as Head's extras.
  Counters* counters;
  const Instance* instances;
  Result* result;                  // Host memory that the GPU can write, and what follows, too.
  double* placement;               // Four numbers that the host needs to read the result.
  void* kept_prototypes;           // Copy of the prototypes, or of the planes of the objects.
  float4* bounds;                  // Of the cells above 0 in a plane: left, top, right, bottom.
  unsigned short* owners;          // (height, pitch): place of the best object + 1, or 0.
  void* labels;                    // Likewise: its class + 1, of one or two bytes.
  int row_step, column_step;       // Of the coefficients.
  int channels, lines, cells;      // channels: 0 for planes.
  int width, height, pitch, wide;  // pitch: a multiple of 8; wide: two bytes per label.
  double scale_x, scale_y, pad_x, pad_y;
  Axis rows, columns;
};

// A value above 0 is inside.
template <class T> __device__ __forceinline__ float mask_value(
    const Masks& m, const float* coefficients, int row, int line, int cell) {
  float sum = 0.f;
  const size_t plane = (size_t)m.lines * m.cells, place = (size_t)line * m.cells + cell;
  if (!m.channels) return T::at(m.prototypes, row * plane + place);
#pragma unroll 8
  for (int c = 0; c < m.channels; ++c) sum += coefficients[c] * T::at(m.prototypes, c * plane + place);
  return 1.f / (1.f + expf(-sum)) - 0.5f;
}

template <class T> __device__ __forceinline__ void paint(const Masks& m) {
  __shared__ float values[TILE_CELLS], coefficients[COEFFICIENTS_MAX];
  __shared__ Tap row_taps[TILE_HEIGHT];
  __shared__ int found[256], warp_counts[8];
  __shared__ __align__(16) unsigned short owners[TILE_HEIGHT][TILE_WIDTH];
  __shared__ __align__(16) unsigned short labels[TILE_HEIGHT][TILE_WIDTH];
  const int t = threadIdx.x, lane = t & 31, warp = t / 32, count = m.counters->kept;
  const int left = blockIdx.x * TILE_WIDTH, top = blockIdx.y * TILE_HEIGHT;
  const int right = min(left + TILE_WIDTH, m.width), bottom = min(top + TILE_HEIGHT, m.height);
  // A thread has eight pixels of one column.
  const int x = left + t % TILE_WIDTH, first_y = t / TILE_WIDTH;
  const Tap column = tap(m.columns, min(x, m.width - 1));
  if (t < TILE_HEIGHT) row_taps[t] = tap(m.rows, min(top + t, m.height - 1));
  const int first_cell = tap(m.columns, left).first, last_cell = tap(m.columns, right - 1).second;
  const int first_line = tap(m.rows, top).first, last_line = tap(m.rows, bottom - 1).second;
  const int across = last_cell - first_cell + 1, under = across * (last_line - first_line + 1);
  const bool is_direct = under > TILE_CELLS;  // Fewer pixels than cells.
  unsigned open = 0;  // Pixels that no object covers yet.
  for (int k = 0; k < 8; ++k) {
    owners[first_y + 4 * k][t % TILE_WIDTH] = 0;
    labels[first_y + 4 * k][t % TILE_WIDTH] = 0;
    if (x < m.width && top + first_y + 4 * k < m.height) open |= 1u << k;
  }
  for (int base = 0; base < count; base += 256) {
    Instance mine = {0, 0, 0, 0, 0, 0};
    if (base + t < count) mine = m.instances[base + t];
    const bool hits = mine.x1 < right && mine.x2 > left && mine.y1 < bottom && mine.y2 > top
        && mine.x1 < mine.x2 && mine.y1 < mine.y2;
    const unsigned hitting = __ballot_sync(EVERY, hits);
    if (lane == 0) warp_counts[warp] = __popc(hitting);
    __syncthreads();
    int place = __popc(hitting & ((1u << lane) - 1u)), total = 0;
    for (int w = 0; w < 8; ++w) {
      if (w < warp) place += warp_counts[w];
      total += warp_counts[w];
    }
    if (hits) found[place] = base + t;
    __syncthreads();
    for (int i = 0; i < total; ++i) {
      const int index = found[i];
      const Instance instance = m.instances[index];
      if (t < m.channels) {
        coefficients[t] = T::at(m.coefficients,
            (size_t)instance.row * m.row_step + (size_t)t * m.column_step);
      }
      if (!__syncthreads_or(open)) break;
      if (!is_direct) {
        for (int cell = t; cell < under; cell += 256) {
          values[cell] = mask_value<T>(m, coefficients, instance.row, first_line + cell / across,
                                       first_cell + cell % across);
        }
        __syncthreads();
      }
      for (int k = 0; k < 8; ++k) {
        const int line = first_y + 4 * k, y = top + line;
        if (!((open >> k) & 1) || x < instance.x1 || x >= instance.x2 || y < instance.y1
            || y >= instance.y2) {
          continue;
        }
        const Tap row = row_taps[line];
        float corners[4];
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          const int l = corner < 2 ? row.first : row.second;
          const int c = corner & 1 ? column.second : column.first;
          corners[corner] = is_direct ? mask_value<T>(m, coefficients, instance.row, l, c)
                                      : values[(l - first_line) * across + c - first_cell];
        }
        if (is_inside(corners[0], corners[1], corners[2], corners[3], column.weight, row.weight)) {
          open &= ~(1u << k);
          owners[line][t % TILE_WIDTH] = index + 1;
          labels[line][t % TILE_WIDTH] = instance.label + 1;
        }
      }
      __syncthreads();  // Values and coefficients have been read.
    }
    __syncthreads();
  }
  __syncthreads();
  // Eight adjacent pixels per thread, so that the writes to host memory are long.
  const int line = t / 8, begin = t % 8 * 8;
  if (top + line >= m.height || left + begin >= m.width) return;
  const size_t place = (size_t)(top + line) * m.pitch + left + begin;
  *(uint4*)(m.owners + place) = *(const uint4*)&owners[line][begin];
  if (m.wide) {
    *(uint4*)((unsigned short*)m.labels + place) = *(const uint4*)&labels[line][begin];
  } else {
    unsigned packed[2] = {0, 0};
    for (int i = 0; i < 8; ++i) packed[i / 4] |= (labels[line][begin + i] & 255u) << (i % 4 * 8);
    *(uint2*)((unsigned char*)m.labels + place) = make_uint2(packed[0], packed[1]);
  }
}

// Copies the prototypes to the host and counts their non-finite values; many blocks of 256 threads.
template <class T> __device__ __forceinline__ void keep(const Masks& m) {
  const size_t count = (size_t)m.channels * m.lines * m.cells;
  int bad = 0;
  for (size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; i < count; i += (size_t)gridDim.x * 256) {
    T::copy(m.kept_prototypes, i, m.prototypes, i);
    bad += !is_finite(T::at(m.prototypes, i));
  }
  for (int apart = 16; apart; apart /= 2) bad += __shfl_xor_sync(EVERY, bad, apart);
  if (bad && (threadIdx.x & 31) == 0) atomicAdd(&m.counters->nonfinite, bad);
}

// Copies the planes of the kept objects to the host, with the bounds of their cells above 0, and counts the
// non-finite values in them; blocks of 256 threads, one object each at a time.
template <class T> __device__ __forceinline__ void keep_planes(const Masks& m) {
  __shared__ int bounds[4];
  const int plane = m.lines * m.cells, t = threadIdx.x;
  int bad = 0;
  for (int object = blockIdx.x; object < m.counters->kept; object += gridDim.x) {
    const size_t first = (size_t)m.instances[object].row * plane;
    if (t < 4) bounds[t] = t < 2 ? m.lines + m.cells : 0;
    __syncthreads();
    for (int i = t; i < plane; i += 256) {
      T::copy(m.kept_prototypes, (size_t)object * plane + i, m.prototypes, first + i);
      const float value = T::at(m.prototypes, first + i);
      bad += !is_finite(value);
      if (!(value > 0.f)) continue;
      atomicMin(&bounds[0], i % m.cells);
      atomicMin(&bounds[1], i / m.cells);
      atomicMax(&bounds[2], i % m.cells + 1);
      atomicMax(&bounds[3], i / m.cells + 1);
    }
    __syncthreads();
    if (t == 0) {
      m.bounds[object] = bounds[2] ? make_float4(bounds[0], bounds[1], bounds[2], bounds[3])
                                   : make_float4(0.f, 0.f, 0.f, 0.f);
    }
    __syncthreads();
  }
  for (int apart = 16; apart; apart /= 2) bad += __shfl_xor_sync(EVERY, bad, apart);
  if (bad && (t & 31) == 0) atomicAdd(&m.counters->nonfinite, bad);
}

// One thread, launched last.
__device__ __forceinline__ void finish_instances(const Masks& m) {
  const Counters counted = *m.counters;
  *m.result = {counted.kept, counted.candidates, counted.nonfinite, 0};
  m.placement[0] = m.scale_x;
  m.placement[1] = m.scale_y;
  m.placement[2] = m.pad_x;
  m.placement[3] = m.pad_y;
  *m.counters = {};
}
