// Measures of overlap of two boxes, upright or rotated.

// An IoU threshold t as factors of the sum of two areas: both / either > t where both > sum * t / (1 + t).
// `high` and `low` leave room for the rounding of either formula.
struct Limit {
  float threshold, high, low;
  __device__ __forceinline__ explicit Limit(float t) : threshold(t) {
    const float factor = t / (1.f + t);
    const bool is_exact = t > 1e-6f;  // No digits lost to underflow.
    high = is_exact ? factor * 1.000004f : INFINITE;
    low = is_exact ? factor * 0.999996f : -1.f;
  }
};

struct Verdict { bool suppresses, is_unsure; };

// Two boxes overlap by more than `threshold`: both / either > threshold. Comparing products first
// avoids most divisions; near the threshold the division decides, as in NumPy.
struct Upright {
  Box box;
  float area;

  static __device__ __forceinline__ Upright at(const Head& h, int i) {
    const float4 b = h.boxes_sorted[i];
    return {{b.x, b.y, b.z, b.w}, (b.z - b.x) * (b.w - b.y)};
  }
  template <class T> static __device__ __noinline__ Upright of(const Head& h, int row) {
    const Box b = box_of<T>(h, row);
    return {b, (b.x2 - b.x1) * (b.y2 - b.y1)};
  }
  __device__ __forceinline__ float4 corners() const { return {box.x1, box.y1, box.x2, box.y2}; }
  __device__ __forceinline__ float4 shape() const { return {0.f, 0.f, 0.f, 0.f}; }
  __device__ __forceinline__ bool suppresses(const Upright& other, float threshold) const {
    const float wide = fminf(box.x2, other.box.x2) - fmaxf(box.x1, other.box.x1);
    const float tall = fminf(box.y2, other.box.y2) - fmaxf(box.y1, other.box.y1);
    const bool meets = (wide > 0.f) & (tall > 0.f);
    const float both = wide * tall;
    const float either = area + other.area - both;
    const float edge = threshold * either;
    const bool covers = both > edge * 1.000001f;
    const bool is_exact = (edge > 1e-30f) & (threshold > 1e-6f);  // No digits lost to underflow.
    if (!meets | (is_exact & (covers | (both < edge * 0.999999f)))) return meets & covers;
    return either > 0.f && both / either > threshold;
  }
  // The same without a branch, unless rounding decides. The constants vanish beside boxes that are not tiny.
  __device__ __forceinline__ Verdict compare(const Upright& other, const Limit& limit) const {
    const float wide = fmaxf(fminf(box.x2, other.box.x2) - fmaxf(box.x1, other.box.x1), 0.f);
    const float tall = fminf(box.y2, other.box.y2) - fmaxf(box.y1, other.box.y1);
    const float both = wide * tall, areas = area + other.area;
    const bool suppresses = both > __fmaf_rn(areas, limit.high, 1e-30f);
    return {suppresses, !suppresses & (both > __fmaf_rn(areas, limit.low, -1e-30f))};
  }
};

// The probabilistic IoU of rotated boxes, see vision/nms.py. NaN never exceeds a threshold.
struct Rotated {
  Box box;
  float a, b, c, theta;  // Covariance matrix.

  static __device__ __forceinline__ Rotated at(const Head& h, int i) {
    const float4 b = h.boxes_sorted[i], s = h.shapes_sorted[i];
    return {{b.x, b.y, b.z, b.w}, s.x, s.y, s.z, s.w};
  }
  template <class T> static __device__ __noinline__ Rotated of(const Head& h, int row) {
    return of(box_of<T>(h, row), extra_of<T>(h, row, 0));
  }
  static __device__ __noinline__ Rotated of(const Box& b, float theta) {
    const float cosine = cosf(theta), sine = sinf(theta);
    const float along = b.x2 * b.x2 / 12.f, across = b.y2 * b.y2 / 12.f;
    return {b, along * cosine * cosine + across * sine * sine,
            along * sine * sine + across * cosine * cosine, (along - across) * cosine * sine, theta};
  }
  __device__ __forceinline__ float4 corners() const { return {box.x1, box.y1, box.x2, box.y2}; }
  __device__ __forceinline__ float4 shape() const { return {a, b, c, theta}; }
  __device__ __noinline__ bool suppresses(const Rotated& other, float threshold) const {
    const float tiny = 1e-12f, x = a + other.a, y = b + other.b, z = c + other.c;
    const float product = x * y - z * z, area = product < tiny ? tiny : product;
    const float dx = box.x1 - other.box.x1, dy = box.y1 - other.box.y1;
    const float apart = (x * dy * dy + y * dx * dx - 2.f * z * dx * dy) / area / 4.f;
    const float sides = box.x2 * box.y2 * other.box.x2 * other.box.y2 / 144.f;
    const float ratio = area / (4.f * (sides < tiny ? tiny : sides));
    const float sum = apart + logf(ratio < 1.f ? 1.f : ratio) / 2.f;
    return 1.f - sqrtf(-expm1f(-(sum < 0.f ? 0.f : sum))) > threshold;
  }
};
