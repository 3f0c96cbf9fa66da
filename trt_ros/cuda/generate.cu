// Inputs that depend on the number of the run alone. Equals trt_ros/model/feeds/numbered.py and noise.py
// bit for bit: all operations are rounded on their own, as NumPy does.

typedef unsigned long long u64;

struct Numbered {
  void* target;
  long long* number;  // Of the run.
  long long largest;  // Of a counter.
  u64 seed;
  unsigned count;     // Elements of the input.
  int dtype;
  int uniform_bits;   // 0 for normal numbers.
};

template <class Value>
__device__ __forceinline__ void put(const Numbered& n, unsigned i, Value value) {
  switch (n.dtype) {
    case FLOAT32: ((float*)n.target)[i] = (float)value; break;
    case FLOAT16: ((unsigned short*)n.target)[i] = to_half((float)value); break;
    case BFLOAT16: ((unsigned short*)n.target)[i] = to_bfloat((float)value); break;
    case FLOAT64: ((double*)n.target)[i] = (double)value; break;
    case UINT8: ((unsigned char*)n.target)[i] = (unsigned char)(long long)value; break;
    case INT16: ((short*)n.target)[i] = (short)(long long)value; break;
    case INT32: ((int*)n.target)[i] = (int)(long long)value; break;
    default: ((long long*)n.target)[i] = (long long)value;
  }
}

extern "C" __global__ void __launch_bounds__(256) count_runs(const __grid_constant__ Numbered n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n.count) put(n, i, *n.number < n.largest ? *n.number : n.largest);
}

// Philox4x32-10.
__device__ __forceinline__ void philox(unsigned* words, unsigned low, unsigned high) {
  for (int round = 0; round < 10; ++round) {
    const u64 left = (u64)words[0] * 0xd2511f53u, right = (u64)words[2] * 0xcd9e8d57u;
    words[0] = (unsigned)(right >> 32) ^ words[1] ^ low;
    words[1] = (unsigned)right;
    words[2] = (unsigned)(left >> 32) ^ words[3] ^ high;
    words[3] = (unsigned)left;
    low += 0x9e3779b9u;
    high += 0xbb67ae85u;
  }
}

// Two standard normal numbers, by Box and Muller; see noise.py.
__device__ __forceinline__ float2 normal(unsigned first, unsigned second) {
  const int bits = __float_as_int((float)((first >> 8) + 1));
  const int exponent = (bits - 0x3f3504f3) >> 23;
  const float part = __int_as_float(bits - (exponent << 23));
  const float s = (part - 1.f) / (part + 1.f), t = s * s;
  const float series = ((((2.f / 9.f * t + 2.f / 7.f) * t + 2.f / 5.f) * t + 2.f / 3.f) * t + 2.f) * s;
  const float radius = sqrtf(2.f * ((float)(24 - exponent) * 0.69314718056f - series));
  const int turn = (int)(second >> 8), quarter = (turn + (1 << 21)) >> 22;
  const float angle = (float)(turn - quarter * (1 << 22)) * (3.14159265359f / 8388608.f);
  const float z = angle * angle;
  const float cosine =
      (((1.f / 40320.f * z - 1.f / 720.f) * z + 1.f / 24.f) * z - 1.f / 2.f) * z + 1.f;
  const float sine =
      ((((1.f / 362880.f * z - 1.f / 5040.f) * z + 1.f / 120.f) * z - 1.f / 6.f) * z + 1.f) * angle;
  const float x = quarter & 1 ? sine : cosine, y = quarter & 1 ? cosine : sine;
  return {radius * ((quarter + 1) & 2 ? -x : x), radius * (quarter & 2 ? -y : y)};
}

// Four elements per thread.
extern "C" __global__ void __launch_bounds__(256) draw_noise(const __grid_constant__ Numbered n) {
  const unsigned block = blockIdx.x * blockDim.x + threadIdx.x;
  if (block >= (n.count + 3) / 4) return;
  const u64 number = *n.number;
  unsigned words[4] = {block, 0, (unsigned)number, (unsigned)(number >> 32)};
  philox(words, (unsigned)n.seed, (unsigned)(n.seed >> 32));
  float values[4];
  if (n.uniform_bits) {
    const float scale = 1.f / (1 << n.uniform_bits);
    for (int i = 0; i < 4; ++i) values[i] = (words[i] >> (32 - n.uniform_bits)) * scale;
  } else {
    const float2 a = normal(words[0], words[1]), b = normal(words[2], words[3]);
    values[0] = a.x, values[1] = a.y, values[2] = b.x, values[3] = b.y;
  }
  for (int i = 0; i < 4; ++i) {
    if (4 * block + i < n.count) put(n, 4 * block + i, values[i]);
  }
}

// After the network, on one thread.
extern "C" __global__ void next_run(const __grid_constant__ Numbered n) { ++*n.number; }
