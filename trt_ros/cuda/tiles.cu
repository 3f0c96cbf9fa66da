// Boxes of the tiles of an image as candidates of one NMS: `select_tiles`.

struct Tiles {
  Head head;                     // Its boxes and extras are scratch memory for those of all tiles.
  const unsigned char* results;  // Of each tile, as `emit` writes them, `stride` bytes apart.
  int stride, capacity;          // Boxes that fit into the result of a tile.
  int points;                    // Keypoints per box.
  float origins[64][2];          // The first pixel of each tile.
};

// Moves the boxes of a tile, one per blockIdx.y, to image pixels. Blocks of 256 threads.
__device__ __forceinline__ void select_tile(const Tiles& t) {
  const Head& h = t.head;
  const int tile = blockIdx.y, i = blockIdx.x * 256 + threadIdx.x, row = tile * t.capacity + i;
  const float left = t.origins[tile][0], top = t.origins[tile][1];
  const unsigned char* from = t.results + (size_t)tile * t.stride;
  const Result* header = (const Result*)from;
  const float4* boxes = (const float4*)(from + sizeof(Result));
  const float* scores = (const float*)(boxes + t.capacity);
  const int* labels = (const int*)(scores + t.capacity);
  const float* extras = (const float*)(labels + t.capacity);
  if (i == 0 && header->nonfinite) atomicAdd(&h.counters->nonfinite, header->nonfinite);
  bool pass = i < header->count;
  u64 key = 0;
  if (pass) {
    float4 box = boxes[i];
    box.x += left;
    box.y += top;
    if (h.form != ROTATED) {
      box.z += left;
      box.w += top;
    }
    ((float4*)h.levels[0].boxes)[row] = box;
    for (int k = 0; k < h.extra_count; ++k) {
      const float value = extras[(size_t)i * h.extra_count + k];
      const float moved = t.points == 0 || k % 3 == 2 ? value : value + (k % 3 ? top : left);
      ((float*)h.levels[0].extras)[(size_t)row * h.extra_count + k] = moved;
    }
    pass = labels[i] >= 0 && labels[i] < h.classes;
    key = key_of(scores[i], (unsigned)row * h.classes + labels[i]);
  }
  append(h, pass, key);
}
