// The part of CUDA C++ that the kernels use, on one thread of the CPU: the threads of a block are fibers
// that take turns in random order, some warps behind others, and wait for each other in barriers and warp
// functions. Blocks run one after another. For tests; see kernels_on_cpu.py.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(threads)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

using std::isfinite;
using std::isnan;
using std::max;
using std::min;

struct float4 { float x, y, z, w; };
struct ulonglong2 { unsigned long long x, y; };
struct ulonglong4 { unsigned long long x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
struct float2 { float x, y; };
struct uchar4 { unsigned char x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };
struct dim3 { unsigned x, y, z; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) {
  return {x, y, z, w};
}
inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) {
  return {x, y, z, w};
}

namespace cpu {

const size_t STACK_NBYTES = 1 << 16;
const int MAX_TURNS = 1 << 20;  // Of a block.

// Something that a number of threads reach together.
struct Meeting {
  int arrived = 0;
  unsigned generation = 0;
  unsigned long long values[32], results[32];
  unsigned long long sum = 0, total = 0;
};

struct Fiber {
  std::vector<char> stack;
  ucontext_t begin;
  jmp_buf at;
  bool is_begun, is_done;
  Meeting* waits_for;
  unsigned generation;
  dim3 index;
  int number;
};

inline std::vector<Fiber> fibers;
inline std::vector<int> order;
inline Meeting block_meeting, warp_meetings[32];
inline jmp_buf scheduler;
inline Fiber* current;
inline int live;
inline unsigned long long random_state = 88172645463325252ull;
inline dim3 block_index, block_size, grid_size;
inline void (*body)();

inline unsigned long long random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

inline void wait(Meeting& meeting) {
  current->waits_for = &meeting;
  current->generation = meeting.generation;
  if (!_setjmp(current->at)) _longjmp(scheduler, 1);
}

// Runs one thread of each block.
inline void run_fiber() {
  for (;;) {
    body();
    current->is_done = true;
    --live;
    if (!_setjmp(current->at)) _longjmp(scheduler, 1);
  }
}

// All threads of the block that have not ended; returns the sum of their values.
inline unsigned long long meet_block(unsigned long long value) {
  Meeting& meeting = block_meeting;
  meeting.sum += value;
  ++meeting.arrived;
  wait(meeting);
  return meeting.total;
}

// All 32 threads of a warp; `combine` computes the results of all lanes from their values.
template <class Combine> unsigned long long meet_warp(unsigned long long value, Combine combine) {
  const int lane = current->number & 31;
  Meeting& meeting = warp_meetings[current->number >> 5];
  meeting.values[lane] = value;
  if (++meeting.arrived < 32) {
    wait(meeting);
  } else {
    meeting.arrived = 0;
    combine(meeting.values, meeting.results);
    ++meeting.generation;
  }
  return meeting.results[lane];
}

inline bool is_ready(const Fiber& fiber) {
  return !fiber.is_done && (!fiber.waits_for || fiber.generation != fiber.waits_for->generation);
}

inline void run_block(int threads) {
  live = threads;
  for (Fiber& fiber : fibers) {
    fiber.is_done = false;
    fiber.waits_for = nullptr;
  }
  block_meeting = {};
  for (Meeting& meeting : warp_meetings) meeting = {};
  for (int turns = 0; live;) {
    if (turns % 8 == 0) {  // Not each time: it takes longer than the turn.
      for (int i = threads - 1; i > 0; --i) std::swap(order[i], order[random_number() % (i + 1)]);
    }
    const unsigned resting = (unsigned)(random_number() & random_number());  // Warps that fall behind.
    bool has_run = false;
    for (int i : order) {
      if (resting >> (i / 32) & 1) continue;
      current = &fibers[i];
      if (!is_ready(*current)) continue;
      has_run = true;
      current->waits_for = nullptr;
      if (_setjmp(scheduler)) continue;
      if (current->is_begun) _longjmp(current->at, 1);
      current->is_begun = true;
      setcontext(&current->begin);
    }
    if (live && block_meeting.arrived == live) {
      block_meeting.total = block_meeting.sum;
      block_meeting.sum = block_meeting.arrived = 0;
      ++block_meeting.generation;
    } else if ((!has_run && !resting) || ++turns > MAX_TURNS) {
      fprintf(stderr, "Threads wait for others that have ended, or wait elsewhere, or never end.\n");
      abort();
    }
  }
}

inline void run(void (*kernel)(), dim3 grid, dim3 block) {
  const int threads = block.x * block.y * block.z;
  body = kernel;
  grid_size = grid;
  block_size = block;
  fibers.resize(threads);
  order.resize(threads);
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    order[i] = fiber.number = i;
    fiber.index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    fiber.is_begun = false;
    fiber.stack.resize(STACK_NBYTES);
    getcontext(&fiber.begin);
    fiber.begin.uc_stack.ss_sp = fiber.stack.data();
    fiber.begin.uc_stack.ss_size = STACK_NBYTES;
    fiber.begin.uc_link = nullptr;
    makecontext(&fiber.begin, run_fiber, 0);
  }
  for (unsigned x = 0; x < grid.x; ++x) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned z = 0; z < grid.z; ++z) {
        block_index = {x, y, z};
        run_block(threads);
      }
    }
  }
}

}  // namespace cpu

#define threadIdx (cpu::current->index)
#define blockIdx (cpu::block_index)
#define blockDim (cpu::block_size)
#define gridDim (cpu::grid_size)

inline void __syncthreads() { cpu::meet_block(0); }
inline int __syncthreads_count(int is_true) { return (int)cpu::meet_block(is_true != 0); }
inline int __syncthreads_or(int is_true) { return cpu::meet_block(is_true != 0) != 0; }
inline void __syncwarp(unsigned = 0) {
  cpu::meet_warp(0, [](const auto*, auto*) {});
}
inline void __threadfence() {}

inline unsigned __ballot_sync(unsigned, int is_true) {
  return (unsigned)cpu::meet_warp(is_true != 0, [](const auto* values, auto* results) {
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= (unsigned)values[i] << i;
    for (int i = 0; i < 32; ++i) results[i] = bits;
  });
}
inline int __all_sync(unsigned mask, int is_true) { return __ballot_sync(mask, is_true) == ~0u; }
inline int __any_sync(unsigned mask, int is_true) { return __ballot_sync(mask, is_true) != 0; }
inline unsigned __match_any_sync(unsigned, unsigned value) {
  return (unsigned)cpu::meet_warp(value, [](const auto* values, auto* results) {
    for (int i = 0; i < 32; ++i) {
      results[i] = 0;
      for (int k = 0; k < 32; ++k) results[i] |= (unsigned long long)(values[k] == values[i]) << k;
    }
  });
}
template <class V> V shuffled(V value, int source) {
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  const int lane = cpu::current->number & 31;
  static int sources[32][32];
  sources[cpu::current->number >> 5][lane] = source & 31;
  const int warp = cpu::current->number >> 5;
  bits = cpu::meet_warp(bits, [warp](const auto* values, auto* results) {
    for (int i = 0; i < 32; ++i) results[i] = values[sources[warp][i]];
  });
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class V> V __shfl_sync(unsigned, V value, int source) { return shuffled(value, source); }
template <class V> V __shfl_xor_sync(unsigned, V value, int apart) {
  return shuffled(value, (cpu::current->number & 31) ^ apart);
}
template <class V> V __shfl_up_sync(unsigned, V value, int apart) {
  const int lane = cpu::current->number & 31;
  return shuffled(value, lane >= apart ? lane - apart : lane);
}
template <class V> V __shfl_down_sync(unsigned, V value, int apart) {
  const int lane = cpu::current->number & 31;
  return shuffled(value, lane + apart < 32 ? lane + apart : lane);
}

template <class V> V atomicAdd(V* target, V value) { V old = *target; *target += value; return old; }
inline unsigned atomicAdd(unsigned* target, int value) { return atomicAdd(target, (unsigned)value); }
template <class V> V atomicOr(V* target, V value) { V old = *target; *target |= value; return old; }
template <class V> V atomicMin(V* target, V value) { V old = *target; *target = min(old, value); return old; }
template <class V> V atomicMax(V* target, V value) { V old = *target; *target = max(old, value); return old; }
template <class V> V __ldg(const V* from) { return *from; }
template <class V> V __ldcg(const V* from) { return *from; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline float __int_as_float(int v) { float f; memcpy(&f, &v, 4); return f; }
inline float __uint_as_float(unsigned v) { float f; memcpy(&f, &v, 4); return f; }
inline unsigned __float_as_uint(float f) { unsigned v; memcpy(&v, &f, 4); return v; }
inline int __float_as_int(float f) { int v; memcpy(&v, &f, 4); return v; }
inline float __fmaf_rn(float a, float b, float c) { return (float)((double)a * b + c); }
#ifdef __aarch64__
#define _Float16 __fp16  // GCC 12 has it for C++ on x86-64 only.
#endif
inline float float16_value(unsigned short bits) {
  _Float16 value;
  memcpy(&value, &bits, 2);
  return (float)value;
}
