// Small copies between addresses of the GPU and of mapped host memory, one per block. As nodes of a graph of small
// kernels, a copy to the GPU takes 2 us and one from it 8 us; this kernel takes 1 to 2 us for all of them (H100).
struct Copies {
  unsigned char* targets[16];
  const unsigned char* sources[16];
  unsigned nbytes[16];
};

extern "C" __global__ void __launch_bounds__(1024) copy_small(const __grid_constant__ Copies c) {
  unsigned char* target = c.targets[blockIdx.x];
  const unsigned char* source = c.sources[blockIdx.x];
  const unsigned nbytes = c.nbytes[blockIdx.x];
  const bool is_aligned = (((size_t)target | (size_t)source) & 15) == 0;
  const unsigned vectors = is_aligned ? nbytes / 16 : 0;
  for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) {
    ((uint4*)target)[i] = ((const uint4*)source)[i];
  }
  for (unsigned i = 16 * vectors + threadIdx.x; i < nbytes; i += blockDim.x) target[i] = source[i];
}

// The parts of an image in mapped host memory that are read: `nbytes` of every `period`, one per blockIdx.y. A copy
// engine is 5 us faster, but takes a call for each image, of 50 us in a thread that was asleep (H100).
struct Fetch {
  unsigned char* target;
  const unsigned char* const* source;  // Where the address of a run's image is.
  unsigned long long first, period, nbytes;
};

extern "C" __global__ void __launch_bounds__(512) fetch(const __grid_constant__ Fetch f) {
  const unsigned char* source = *f.source + f.first + blockIdx.y * f.period;
  unsigned char* target = f.target + blockIdx.y * f.nbytes;
  const bool is_aligned = (((size_t)target | (size_t)source) & 3) == 0;
  const size_t words = is_aligned ? f.nbytes / 4 : 0, thread = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (thread < words) ((unsigned*)target)[thread] = ((const unsigned*)source)[thread];
  for (size_t i = 4 * words + thread; i < f.nbytes; i += gridDim.x * blockDim.x) target[i] = source[i];
}
