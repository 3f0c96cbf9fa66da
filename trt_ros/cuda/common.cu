typedef unsigned long long u64;

const unsigned EVERY = 0xffffffffu;
const float LARGEST = 3.402823466e38f;
#define INFINITE __int_as_float(0x7f800000)

// Parameters that may differ between frames of one graph; copied in with the image.
struct Request {
  float score_threshold, iou_threshold;  // score_threshold: of the classes from `table_size` on.
  int max_detections, class_agnostic;
  int table_size, reserved[3];
  // float table[table_size]: minimum score by class; infinity refuses a class.
};

// The minimum score of a class of 0 or above.
__device__ __forceinline__ float min_score(const Request* request, int label) {
  return label < request->table_size ? ((const float*)(request + 1))[label] : request->score_threshold;
}

// Incremented by the kernels of a frame; the last kernel resets them to zero for the next frame.
struct Counters {
  int candidates, nonfinite;
  int kept, left;        // Boxes kept so far; candidates that `filter_*` leaves for `rest_*`.
  u64 bound, prefix;     // Smallest key of the best TOP; its digits known so far.
  int wanted, gathered;  // Keys above the prefix's upper digits that `narrow` still looks for.
  int blocks, narrowed;  // Blocks of `narrow` that have finished; whether `bound` is known.
  int are_logits;        // Whether a score of a class mask is outside 0 to 1.
};

// Header of the result. For boxes, the arrays of boxes, scores and labels follow, each of `capacity`
// elements of which `count` are valid.
struct Result {
  int count, candidates, nonfinite, reserved;
};

struct Float32 {
  static const bool is_anchored = false;
  static __device__ __forceinline__ float at(const void* values, size_t i) {
    return __ldg((const float*)values + i);
  }
  static __device__ __forceinline__ void copy(void* to, size_t at, const void* from, size_t i) {
    ((float*)to)[at] = __ldg((const float*)from + i);
  }
};
struct Float16 {
  static const bool is_anchored = false;
  static __device__ __forceinline__ float at(const void* values, size_t i) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(__ldg((const unsigned short*)values + i)));
    return value;
  }
  static __device__ __forceinline__ void copy(void* to, size_t at, const void* from, size_t i) {
    ((unsigned short*)to)[at] = __ldg((const unsigned short*)from + i);
  }
};
struct Bfloat16 {
  static const bool is_anchored = false;
  static __device__ __forceinline__ float at(const void* values, size_t i) {
    return __uint_as_float((unsigned)__ldg((const unsigned short*)values + i) << 16);
  }
  static __device__ __forceinline__ void copy(void* to, size_t at, const void* from, size_t i) {
    ((unsigned short*)to)[at] = __ldg((const unsigned short*)from + i);
  }
};

// Outputs whose boxes are relative to anchors. Kernels of their own, because the others are faster without.
template <class T> struct Anchored : T {
  static const bool is_anchored = true;
};

__device__ __forceinline__ bool is_finite(float v) { return fabsf(v) <= LARGEST; }

