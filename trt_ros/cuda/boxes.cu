// Boxes of a network: where their values lie and how they are coded.

// x1 y1 x2 y2; cx cy w h; cx cy w h and an angle, the first of the extras. From the anchor: offset of the
// center and the size; distances to the left, top, right and bottom.
enum Form { CORNERS, CENTERS, ROTATED, OFFSETS, SIDES };
enum Unit { STRIDE, PRIOR, PIXEL };     // Of offsets and sides.
// SQUARED: YOLOv5's (2 s)^2 of a sigmoid s, and 2 s - 0.5 of the center; TANH: s of the input, tanh of the center.
enum SizeCode { EXP, LINEAR, SQUARED, TANH };
// Softmax: one more entry than classes. Maybe sigmoid: unless no score is below 0.
enum Activation { NONE, SIGMOID, SOFTMAX, MAYBE_SIGMOID };
// Meaning of the extras: an angle; x, y and maybe visibility per keypoint; coefficients of a mask, none for
// a plane of its own.
enum Extras { NO_EXTRAS, ANGLE, KEYPOINTS_2, KEYPOINTS_3, COEFFICIENTS };
enum Kind { ABSENT, INT32, INT64, SCORES };  // SCORES: the dtype of the scores.

// A kept object with a mask: the pixels of its box, its row and its class.
struct Instance { int x1, y1, x2, y2, row, label; };

// Rows of one output, or of one stride. Element k of a row's box is boxes[row * box_row + k * box_column],
// likewise scores and extras.
struct Level {
  const void* boxes;            // Null: zeros.
  const void* sizes;            // The second half of a box's elements, where it is apart; or null.
  const void* scores;
  const void* objectness;       // Factor of a row's scores; may be null.
  const void* extras;           // Further values of a row; may be null.
  int first;                    // Rows before this level.
  int across, cells, per_cell;  // Cells of a line, and all; anchors of a cell.
  float strides[2];             // Along x and y.
  float priors[6][2];           // Width and height of the anchors of a cell.
};

struct Head {
  Level levels[4];
  const void *labels;      // One class per row, where the network outputs classes; may be null.
  const void *count;       // Number of valid rows; may be null, for all.
  const Request* request;  // In device memory, or in mapped host memory.
  unsigned char* result;   // Host memory that the GPU can write.
  Counters* counters;
  // Scratch: one key per candidate; the best TOP keys; both unsorted. Then in order of the score:
  // keys, boxes in input pixels, and covariances of rotated boxes. Places in this order of the boxes
  // kept, best first.
  u64 *keys, *top, *sorted;
  float4 *boxes_sorted, *shapes_sorted;
  int* kept;
  Instance* instances;     // With coefficients of masks: the kept objects.
  u64* mask;               // (pitch * 64, pitch): bit b of word w of row r, see `mask_*`.
  unsigned* histogram;     // DIGITS counts, zero between frames.
  int pitch, shift;        // Of `mask`, in words; of the digits that one launch of `narrow` looks at.
  int capacity;            // Boxes that fit into the result.
  int places;              // Candidates at most.
  int rows, classes, level_count;
  int row_classes;         // Classes that share a box; 1: each class has its own, a row per class of a cell.
  int box_row, box_column, extra_row, extra_column, score_row, score_column, objectness_row;
  int label_row, label_kind, label_offset, count_kind;  // label_offset: subtracted from `labels`.
  int extra_count, extra_kind;
  int form, activation, uses_nms;
  float box_width, box_height;  // Input size where boxes are normalized to 0 to 1; 1 where they are in pixels.
  // Elements per value of a box; one bin is the value itself. Anchors of a cell follow each other, or with
  // `planes` each is a plane of all cells. Boxes of one class are `box_plane` apart from those of the next.
  int bins, planes, box_plane, is_y_first;  // is_y_first: y1, x1, y2, x2.
  int unit, size_code, limits_objectness;
  int has_points, is_peak;             // Keypoints are coded as the boxes, 2: in their box; scores are peaks.
  float place, pixel, gain, size_gain; // Anchor: (cell + place) * stride + pixel.
  float power, class_power;            // (objectness * score^class_power)^power
  float limits[2];                     // Sides are limited to this size; 0: they are not.
  float scale_x, scale_y, scale_area, pad_x, pad_y;   // input = image * scale + pad; both scales multiplied
  int has_one_scale;                                  // Whether both are equal.
  int image_width, image_height;
};

// Sorts by score, then by lower place: row * classes + class. Keys are unique, so that the order never
// depends on scheduling.
__device__ __forceinline__ u64 key_of(float score, unsigned place) {
  return ((u64)__float_as_uint(score + 0.f) << 32) | (u64)~place;
}
__device__ __forceinline__ float score_of(u64 key) { return __uint_as_float((unsigned)(key >> 32)); }
__device__ __forceinline__ int row_of(const Head& h, u64 key) {
  return (int)(~(unsigned)key / (unsigned)h.row_classes);
}
// The class among those of one row.
__device__ __forceinline__ int class_of(const Head& h, u64 key) {
  return (int)(~(unsigned)key % (unsigned)h.classes);
}

// Whether boxes suppress each other, maybe only because the request asks for it.
__device__ __forceinline__ bool suppresses(const Head& h) {
  return h.uses_nms || h.request->class_agnostic;
}
// Boxes suppress those of their own group, which are a class each, or one of all classes.
__device__ __forceinline__ unsigned group_count(const Head& h) {
  return h.request->class_agnostic ? 1u : (unsigned)h.classes;
}
__device__ __forceinline__ int group_of(u64 key, unsigned groups) {
  return (int)(~(unsigned)key % groups);
}

// Level of a row; 0 unless boxes are relative to anchors.
template <class T> __device__ __forceinline__ int level_of(const Head& h, int row) {
  int level = 0;
  while (T::is_anchored && level + 1 < h.level_count && row >= h.levels[level + 1].first) ++level;
  return level;
}

__device__ __forceinline__ float sigmoid(float v) { return 1.f / (1.f + expf(-v)); }

// Element k of `box_values` of a row.
template <class T> __device__ __forceinline__ float box_value(const Head& h, int row, int k) {
  if (!T::is_anchored) {
    return T::at(h.levels[0].boxes, (size_t)row * h.box_row + (size_t)k * h.box_column);
  }
  const int level = level_of<T>(h, row), half = 2 * h.bins;
  const bool is_size = k >= half && h.levels[level].sizes;
  const void* values = is_size ? h.levels[level].sizes : h.levels[level].boxes;
  size_t at = (size_t)(row - h.levels[level].first) * h.box_row;
  if (h.box_plane) at = (size_t)(row % h.classes) * h.box_plane + (size_t)(row / h.classes) * h.box_row;
  return values ? T::at(values, at + (size_t)(is_size ? k - half : k) * h.box_column) : 0.f;
}

// An anchor along x or y: its cell, and its place and unit in pixels.
struct Anchor { float cell, stride, place, unit; };

template <class T> __device__ __forceinline__ Anchor anchor_of(const Head& h, int row, int axis) {
  const Level& l = h.levels[level_of<T>(h, row)];
  const int inside = h.box_plane ? row / h.classes : row - l.first;
  const int cell = h.planes ? inside % l.cells : inside / l.per_cell;
  const int prior = h.planes ? inside / l.cells : inside % l.per_cell;
  const float at = (float)(axis ? cell / l.across : cell % l.across), stride = l.strides[axis];
  return {at, stride, (at + h.place) * stride + h.pixel,
          h.unit == STRIDE ? stride : h.unit == PRIOR ? l.priors[prior][axis] : 1.f};
}

// A coordinate by its offset from the anchor.
__device__ __forceinline__ float from_anchor(const Head& h, const Anchor& a, float offset) {
  if (h.form == OFFSETS && h.unit == STRIDE) return (offset + (a.cell + h.place)) * a.stride;  // As NumPy rounds.
  return a.place + offset * (h.gain * a.unit);
}

// Value k of a box from the softmax of its bins: the mean bin.
template <class T> __device__ __noinline__ float mean_bin(const Head& h, int row, int k) {
  float highest = -INFINITE, sum = 0.f, mean = 0.f;
#pragma unroll 1
  for (int b = 0; b < h.bins; ++b) highest = fmaxf(highest, box_value<T>(h, row, k * h.bins + b));
#pragma unroll 1
  for (int b = 0; b < h.bins; ++b) {
    const float power = expf(box_value<T>(h, row, k * h.bins + b) - highest);
    sum += power;
    mean += power * b;
  }
  return mean / sum;
}

struct Span { float low, high; };

// The sides of a box that is relative to an anchor, along x or y. Not inlined: few networks have these.
template <class T> __device__ __noinline__ Span anchored_span(const Head& h, int row, int axis) {
  const int k = h.is_y_first ? 1 - axis : axis;
  const float first = h.bins > 1 ? mean_bin<T>(h, row, k) : box_value<T>(h, row, k);
  const float second = h.bins > 1 ? mean_bin<T>(h, row, k + 2) : box_value<T>(h, row, k + 2);
  const Anchor a = anchor_of<T>(h, row, axis);
  if (h.form == SIDES) {
    Span s = {a.place - first * h.gain * a.unit, a.place + second * h.gain * a.unit};
    const float limit = h.limits[axis];
    if (limit > 0.f && is_finite(s.low) && is_finite(s.high)) {
      s = {fminf(fmaxf(s.low, 0.f), limit), fminf(fmaxf(s.high, 0.f), limit)};
    }
    return s;
  }
  float center, half;
  if (h.size_code == SQUARED) {
    const float side = 2.f * sigmoid(second);
    center = (2.f * sigmoid(first) - 0.5f + a.cell) * a.stride;
    half = side * side * a.unit / 2.f;
  } else if (h.size_code == TANH) {
    const Level& l = h.levels[level_of<T>(h, row)];
    center = (tanhf(first) + a.cell) * a.stride;
    half = sigmoid(second) * (axis ? l.cells / l.across : l.across) * a.stride / 2.f;
  } else {
    center = from_anchor(h, a, first);
    half = (h.size_code == EXP ? expf(h.size_gain * second) : second) * a.unit / 2.f;
  }
  return {center - half, center + half};
}

struct __align__(16) Box { float x1, y1, x2, y2; };  // Or cx, cy, w, h where rotated.

template <class T> __device__ __forceinline__ Box box_of(const Head& h, int row) {
  if (T::is_anchored) {
    const Span x = anchored_span<T>(h, row, 0), y = anchored_span<T>(h, row, 1);
    return {x.low, y.low, x.high, y.high};
  }
  const int second = h.is_y_first ? 0 : 1;
  const float x = box_value<T>(h, row, 1 - second), y = box_value<T>(h, row, second);
  const float w = box_value<T>(h, row, 3 - second), t = box_value<T>(h, row, 2 + second);
  if (h.form == ROTATED) return {x, y, w, t};
  if (h.form == CORNERS) {
    return {x * h.box_width, y * h.box_height, w * h.box_width, t * h.box_height};
  }
  const float half_w = w / 2.f, half_h = t / 2.f;
  return {(x - half_w) * h.box_width, (y - half_h) * h.box_height,
          (x + half_w) * h.box_width, (y + half_h) * h.box_height};
}

template <class T> __device__ __forceinline__ float extra_of(const Head& h, int row, int k) {
  const int level = level_of<T>(h, row);
  const size_t at = (size_t)(row - h.levels[level].first) * h.extra_row + (size_t)k * h.extra_column;
  return T::at(h.levels[level].extras, at);
}

// Non-finite values among elements `first`, `first + step` .. of a row's box and extras.
template <class T> __device__ __forceinline__ int count_nonfinite(const Head& h, int row, int first, int step) {
  int found = 0;
  for (int k = first; k < (T::is_anchored ? 4 * h.bins : 4); k += step) found += !is_finite(box_value<T>(h, row, k));
  for (int k = first; k < h.extra_count; k += step) found += !is_finite(extra_of<T>(h, row, k));
  return found;
}

__device__ __forceinline__ int integer_at(const void* values, int kind, size_t i) {
  return kind == INT64 ? (int)__ldg((const long long*)values + i) : __ldg((const int*)values + i);
}

// The class of a row from `labels`; negative where invalid.
template <class T> __device__ __forceinline__ int label_at(const Head& h, int row) {
  const size_t i = (size_t)row * h.label_row;
  if (h.label_kind != SCORES) return integer_at(h.labels, h.label_kind, i) - h.label_offset;
  const float label = T::at(h.labels, i) - h.label_offset;
  return label >= 0.f && is_finite(label) ? (int)label : -1;
}

// Maps a box from network input to image pixels and clips it to the image.
__device__ __forceinline__ Box in_image(const Head& h, const Box& b) {
  const float wide = (float)h.image_width, tall = (float)h.image_height;
  return {fminf(fmaxf((b.x1 - h.pad_x) / h.scale_x, 0.f), wide),
          fminf(fmaxf((b.y1 - h.pad_y) / h.scale_y, 0.f), tall),
          fminf(fmaxf((b.x2 - h.pad_x) / h.scale_x, 0.f), wide),
          fminf(fmaxf((b.y2 - h.pad_y) / h.scale_y, 0.f), tall)};
}

struct Oriented { float x, y, w, h, theta; };

// Maps a rotated box to image pixels, without clipping; see vision/nms.py.
// Not inlined: sines and cosines of any angle are long, and the kernels many.
__device__ __noinline__ Oriented oriented_in_image(const Head& h, const Box& b, float theta) {
  const float along_x = cosf(theta) / h.scale_x, along_y = sinf(theta) / h.scale_y;
  const float stretch = hypotf(along_x, along_y);
  return {(b.x1 - h.pad_x) / h.scale_x, (b.y1 - h.pad_y) / h.scale_y, b.x2 * stretch,
          b.y2 / (stretch * h.scale_area),
          h.has_one_scale ? theta : atan2f(along_y, along_x)};
}

__device__ __noinline__ bool overlaps_image(const Head& h, const Box& b, float theta) {
  if (!(is_finite(theta) && b.x2 > 0.f && b.y2 > 0.f)) return false;
  const Oriented o = oriented_in_image(h, b, theta);
  const float along = fabsf(cosf(o.theta)), across = fabsf(sinf(o.theta));
  const float half_x = (o.w * along + o.h * across) / 2.f;
  const float half_y = (o.w * across + o.h * along) / 2.f;
  return o.x + half_x > 0.f && o.x - half_x < (float)h.image_width
      && o.y + half_y > 0.f && o.y - half_y < (float)h.image_height;
}

// Whether a box is finite and overlaps the image.
template <class T> __device__ __noinline__ bool is_usable(const Head& h, int row) {
  const Box b = box_of<T>(h, row);
  if (!(is_finite(b.x1) && is_finite(b.y1) && is_finite(b.x2) && is_finite(b.y2))) return false;
  if (h.form == ROTATED) return overlaps_image(h, b, extra_of<T>(h, row, 0));
  const Box seen = in_image(h, b);
  return seen.x1 < seen.x2 && seen.y1 < seen.y2;
}
