// Preprocessing of a camera image in one pass: color, resize or crop, pad, normalize, layout, dtype.
// One thread per pixel of the network's input. Equals trt_ros/vision; test/gpu compares the two.

enum Encoding {
  RGB, BGR, RGBA, BGRA, MONO, MONO16, UYVY, YUYV, NV12, NV21, RGGB, BGGR, GBRG, GRBG,
  ALPHA,    // The fourth of four bytes.
  VALUE16,  // 16 bits, times `unit`.
  VALUE32,  // float32; values that are not finite count as 0.
};
enum Written { COLORS, LUMA, VALUE };  // Three channels; one of weighted colors; one as read.
enum Dtype { FLOAT32, FLOAT16, BFLOAT16, UINT8, FLOAT64, INT16, INT32, INT64 };

struct Preprocess {
  const unsigned char* source;
  void* target;               // The first element of the image's channel 0 in the input tensor.
  int width, height, step;    // Of the source, or of a tile of it; step in bytes.
  int first_x, first_y, whole_width, whole_height;  // Place of the tile in the source, and its whole size.
  int encoding, big_endian;
  int input_width, input_height;
  int left, top, content_width, content_height;  // The image's area in the network's input.
  float step_x, step_y;       // Source pixels per pixel of the content.
  int area_x, area_y;         // Whether to average all covered source pixels along this axis.
  int bgr, nhwc, dtype;
  int written, channel, channels;  // What is written from which channel on; channels of the input.
  float unit;                 // Of VALUE16.
  float pad;                  // 0 to 255.
  float multiply[3], add[3];  // value = pixel * multiply + add, by written channel.
};

struct Color {
  float r, g, b;
  __device__ __forceinline__ Color(float r, float g, float b) : r(r), g(g), b(b) {}
};

__device__ __forceinline__ int saturate(int v) { return min(max(v, 0), 255); }

// ITU-R BT.601, limited range, in 20-bit fixed point: 1.164, 1.596, -0.813, -0.391, 2.018.
__device__ __forceinline__ Color from_yuv(int y, int u, int v) {
  const int half = 1 << 19;
  y = max(y - 16, 0) * 1220542;
  u -= 128;
  v -= 128;
  return Color(saturate((y + 1673527 * v + half) >> 20),
                saturate((y - 852492 * v - 409993 * u + half) >> 20),
                saturate((y + 2116026 * u + half) >> 20));
}

// Bilinear demosaicing: a missing color is the mean of its two or four nearest samples; a border
// pixel repeats the pixel next to it.
__device__ __forceinline__ Color from_bayer(
    const unsigned char* source, int step, int width, int height, int x, int y,
    int red_x, int red_y) {
  x = min(max(x, 1), width - 2);
  y = min(max(y, 1), height - 2);
  const unsigned char* p = source + (size_t)y * step + x;
  const int here = p[0];
  const int across = p[-1] + p[1];
  const int down = p[-step] + p[step];
  const bool red_column = (x & 1) == red_x;
  const bool red_row = (y & 1) == red_y;
  if (red_column == red_row) {
    const int cross = (across + down + 2) >> 2;
    const int corners = (p[-step - 1] + p[-step + 1] + p[step - 1] + p[step + 1] + 2) >> 2;
    return red_row ? Color(here, cross, corners) : Color(corners, cross, here);
  }
  const int beside = (across + 1) >> 1;
  const int above = (down + 1) >> 1;
  return red_row ? Color(beside, here, above) : Color(above, here, beside);
}

__device__ __forceinline__ Color gray(float value) { return Color(value, value, value); }

// By bytes, because rows may begin anywhere.
__device__ __forceinline__ unsigned bits_at(const unsigned char* p, int count, bool big_endian) {
  unsigned bits = 0;
  for (int i = 0; i < count; ++i) {
    bits |= (unsigned)p[i] << 8 * (big_endian ? count - 1 - i : i);
  }
  return bits;
}

__device__ __forceinline__ Color pixel(const Preprocess& p, int encoding, int x, int y) {
  const unsigned char* row = p.source + (size_t)y * p.step;
  switch (encoding) {
    case RGB: return Color(row[3 * x], row[3 * x + 1], row[3 * x + 2]);
    case BGR: return Color(row[3 * x + 2], row[3 * x + 1], row[3 * x]);
    case RGBA: return Color(row[4 * x], row[4 * x + 1], row[4 * x + 2]);
    case BGRA: return Color(row[4 * x + 2], row[4 * x + 1], row[4 * x]);
    case MONO: return gray(row[x]);
    case MONO16: return gray(row[2 * x + (p.big_endian ? 0 : 1)]);
    case ALPHA: return gray(row[4 * x + 3]);
    case VALUE16: return gray(bits_at(row + 2 * x, 2, p.big_endian) * p.unit);
    case VALUE32: {
      const float value = __uint_as_float(bits_at(row + 4 * x, 4, p.big_endian));
      return gray(isfinite(value) ? value : 0.f);
    }
    case UYVY: {
      const int pair = (x >> 1) * 4;
      return from_yuv(row[2 * x + 1], row[pair], row[pair + 2]);
    }
    case YUYV: {
      const int pair = (x >> 1) * 4;
      return from_yuv(row[2 * x], row[pair + 1], row[pair + 3]);
    }
    case NV12:
    case NV21: {
      const unsigned char* chroma = p.source + (size_t)(p.whole_height + (y >> 1)) * p.step + (x & ~1);
      const int first = chroma[0], second = chroma[1];
      return encoding == NV12 ? from_yuv(row[x], first, second) : from_yuv(row[x], second, first);
    }
    case RGGB: return from_bayer(p.source, p.step, p.whole_width, p.whole_height, x, y, 0, 0);
    case BGGR: return from_bayer(p.source, p.step, p.whole_width, p.whole_height, x, y, 1, 1);
    case GBRG: return from_bayer(p.source, p.step, p.whole_width, p.whole_height, x, y, 0, 1);
    default: return from_bayer(p.source, p.step, p.whole_width, p.whole_height, x, y, 1, 0);
  }
}

__device__ __forceinline__ void add_to(float* sum, const Color& c, float weight) {
  sum[0] += c.r * weight;
  sum[1] += c.g * weight;
  sum[2] += c.b * weight;
}

// The source pixels of one content pixel along an axis, and their weights.
struct Taps {
  int first, last;
  float low, high;  // Area: covered interval in source pixels. Otherwise: weights of `first` and `last`.
  bool area;

  __device__ __forceinline__ Taps(int at, float step, int size, bool area) : area(area) {
    if (area) {
      low = at * step;
      high = fminf(low + step, (float)size);
      first = (int)low;
      last = min((int)ceilf(high), size) - 1;
    } else {
      const float center = fminf(fmaxf((at + 0.5f) * step - 0.5f, 0.f), (float)(size - 1));
      first = (int)center;
      last = min(first + 1, size - 1);
      high = last > first ? center - first : 0.f;
      low = 1.f - high;
    }
  }
  // The two pixels beside a place. Those outside the image have no weight.
  __device__ __forceinline__ Taps(float at, int size) : area(false) {
    at = fminf(fmaxf(at, -1.f), (float)size);
    const int before = (int)floorf(at);
    first = min(max(before, 0), size - 1);
    last = min(before + 1, size - 1);
    low = first == before ? 1.f - (at - before) : 0.f;
    high = last == before + 1 ? at - before : 0.f;
  }
  __device__ __forceinline__ float weight(int i) const {
    if (area) return (fminf(i + 1.f, high) - fmaxf((float)i, low)) / (high - low);
    return i == first ? low : high;
  }
};

// Two by two pixels from `left` and `top` on. Each encoding has its own code, in which a thread reads all four
// at once.
template <int ENCODING = RGB>
__device__ __forceinline__ void blend(
    const Preprocess& p, const Taps& across, const Taps& down, int left, int top, float* color) {
  if (p.encoding == ENCODING) {
    add_to(color, pixel(p, ENCODING, left + across.first, top + down.first), across.low * down.low);
    add_to(color, pixel(p, ENCODING, left + across.last, top + down.first), across.high * down.low);
    add_to(color, pixel(p, ENCODING, left + across.first, top + down.last), across.low * down.high);
    add_to(color, pixel(p, ENCODING, left + across.last, top + down.last), across.high * down.high);
  } else if constexpr (ENCODING < VALUE32) {
    blend<ENCODING + 1>(p, across, down, left, top, color);
  }
}

__device__ __forceinline__ Color pixel(const Preprocess& p, int x, int y) {
  return pixel(p, p.encoding, x, y);
}

struct Rectified : Preprocess {
  float rays[9];             // The ray of a rectified pixel: this matrix * (column, row, 1).
  float fx, fy, cx, cy;      // Of the image.
  float d[12];               // Coefficients of distortion, in the order of OpenCV.
  int equidistant;           // Instead of a polynomial of the tangent.
};

// A pixel of the rectified image: four taps of the image, and black outside.
__device__ __noinline__ Color pixel(const Rectified& p, int x, int y) {
  const float* const m = p.rays;
  const float* const d = p.d;
  const float z = m[6] * x + m[7] * y + m[8];
  float a = (m[0] * x + m[1] * y + m[2]) / z, b = (m[3] * x + m[4] * y + m[5]) / z;
  const float r2 = a * a + b * b;
  if (p.equidistant) {
    const float r = sqrtf(r2), angle = atanf(r), t = angle * angle;
    const float bent = angle * (1.f + t * (d[0] + t * (d[1] + t * (d[2] + t * d[3]))));
    const float scale = r > 0.f ? bent / r : 1.f;
    a *= scale, b *= scale;
  } else {
    const float radial = (1.f + r2 * (d[0] + r2 * (d[1] + r2 * d[4]))) /
                         (1.f + r2 * (d[5] + r2 * (d[6] + r2 * d[7])));
    const float u = a, v = b;
    a = u * radial + 2.f * d[2] * u * v + d[3] * (r2 + 2.f * u * u) + r2 * (d[8] + r2 * d[9]);
    b = v * radial + d[2] * (r2 + 2.f * v * v) + 2.f * d[3] * u * v + r2 * (d[10] + r2 * d[11]);
  }
  float color[3] = {0.f, 0.f, 0.f};
  if (z > 0.f) {
    blend(p, Taps(p.fx * a + p.cx, p.whole_width), Taps(p.fy * b + p.cy, p.whole_height), 0, 0, color);
  }
  return Color(color[0], color[1], color[2]);
}

// All source pixels of one content pixel.
template <class P>
__device__ __forceinline__ void add_all(const P& p, const Taps& across, const Taps& down, float* color) {
  for (int y = down.first; y <= down.last; ++y) {
    const float tall = down.weight(y);
    for (int x = across.first; x <= across.last; ++x) {
      add_to(color, pixel(p, p.first_x + x, p.first_y + y), tall * across.weight(x));
    }
  }
}

// Area averaging or bilinear interpolation, chosen per axis.
__device__ __forceinline__ void resample(
    const Preprocess& p, const Taps& across, const Taps& down, float* color) {
  if (p.area_x || p.area_y) {
    add_all(p, across, down, color);
  } else {
    blend(p, across, down, p.first_x, p.first_y, color);
  }
}
__device__ __forceinline__ void resample(
    const Rectified& p, const Taps& across, const Taps& down, float* color) {
  add_all(p, across, down, color);
}

__device__ __forceinline__ unsigned short to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// Rounds to nearest even in integer arithmetic: sm_75 has no instruction for it.
__device__ __forceinline__ unsigned short to_bfloat(float value) {
  const unsigned bits = __float_as_uint(value);
  return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__device__ __forceinline__ void store(const Preprocess& p, size_t index, float value) {
  switch (p.dtype) {
    case FLOAT32: ((float*)p.target)[index] = value; break;
    case FLOAT16: ((unsigned short*)p.target)[index] = to_half(value); break;
    case BFLOAT16: ((unsigned short*)p.target)[index] = to_bfloat(value); break;
    default: ((unsigned char*)p.target)[index] = (unsigned char)fminf(fmaxf(rintf(value), 0.f), 255.f);
  }
}

// Normalizes one pixel and writes its channels; `image` is the index in the batch.
__device__ __forceinline__ void write(
    const Preprocess& p, int x, int y, int image, const float* color) {
  const size_t plane = (size_t)p.input_width * p.input_height;
  const size_t here = (size_t)y * p.input_width + x;
  const size_t first = image * plane * p.channels;
  float channels[3] = {p.bgr ? color[2] : color[0], color[1], p.bgr ? color[0] : color[2]};
  if (p.written == LUMA) channels[0] = 0.299f * color[0] + 0.587f * color[1] + 0.114f * color[2];
  const int count = p.written == COLORS ? 3 : 1;
  for (int c = 0; c < count; ++c) {
    const int channel = p.channel + c;
    store(p, first + (p.nhwc ? here * p.channels + channel : here + channel * plane),
          channels[c] * p.multiply[c] + p.add[c]);
  }
}

template <class P>
__device__ __forceinline__ void preprocess_pixel(const P& p) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= p.input_width || y >= p.input_height) return;
  const int in_x = x - p.left, in_y = y - p.top;
  float color[3] = {0.f, 0.f, 0.f};
  if (in_x < 0 || in_y < 0 || in_x >= p.content_width || in_y >= p.content_height) {
    color[0] = color[1] = color[2] = p.pad;
  } else {
    resample(p, Taps(in_x, p.step_x, p.width, p.area_x), Taps(in_y, p.step_y, p.height, p.area_y), color);
  }
  write(p, x, y, 0, color);
}

extern "C" __global__ void __launch_bounds__(256) preprocess(const __grid_constant__ Preprocess p) {
  preprocess_pixel(p);
}

extern "C" __global__ void __launch_bounds__(256) rectify(const __grid_constant__ Rectified p) {
  preprocess_pixel(p);
}

struct Crop {
  Preprocess image;   // The resizing of the whole image is not read.
  // Eight numbers per region: x, y in the source = map * (column, row, 1), up to the last column.
  const float* maps;
};

// One region per blockIdx.z: four taps at the pixel's place in the source, padding outside.
extern "C" __global__ void __launch_bounds__(256) crop(const __grid_constant__ Crop c) {
  const Preprocess& p = c.image;
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= p.input_width || y >= p.input_height) return;
  const float* map = c.maps + 8 * blockIdx.z;
  const float u = x + 0.5f, v = y + 0.5f;
  const Taps across(map[0] * u + map[1] * v + map[2] - 0.5f, p.width);
  const Taps down(map[4] * u + map[5] * v + map[6] - 0.5f, p.height);
  float color[3] = {0.f, 0.f, 0.f};
  blend(p, across, down, p.first_x, p.first_y, color);
  const float padding = 1.f - across.low * down.low - across.high * down.low - across.low * down.high -
                        across.high * down.high;
  const bool is_inside = x < map[3];
  for (int i = 0; i < 3; ++i) color[i] = is_inside ? color[i] + p.pad * padding : p.pad;
  write(p, x, y, blockIdx.z, color);
}

struct Regions {
  const int* result;     // Of the detector; common.cu: struct Result, and boxes_nbytes.
  float* maps;           // Eight numbers per region, for `crop`.
  float* placed;         // The same in host memory,
  int* chosen;           // and the box of each region, -1 without one.
  double scale;
  int capacity;          // Of boxes in the result.
  int rows, count;       // Regions that are run, and how many of them may have a box.
  int is_rotated;
  int resize;            // 0: expand, 1: stretch, 2: line; see vision/regions.py.
  int width, height;     // Of the image.
  int input_width, input_height;
};

// Reads a box as center, size and angle; returns whether it has an area in common with the image.
// Two rectangles have none if a side of one of them separates them.
__device__ bool read_box(const Regions& r, int i, double box[5]) {
  const float* const values = (const float*)(r.result + 4);
  for (int k = 0; k < 4; ++k) box[k] = values[4 * i + k];
  box[4] = r.is_rotated ? values[6 * r.capacity + i] : 0.;
  if (!r.is_rotated) {
    const double right = box[2], bottom = box[3];
    box[2] = right - box[0], box[3] = bottom - box[1];
    box[0] = (box[0] + right) / 2, box[1] = (box[1] + bottom) / 2;
  }
  bool is_valid = box[2] > 0 && box[3] > 0;
  for (int k = 0; k < 5; ++k) is_valid = is_valid && fabs(box[k]) <= 1e12;
  const double c = fabs(cos(box[4])), s = fabs(sin(box[4]));
  const double wide = r.width / 2., high = r.height / 2., x = wide - box[0], y = high - box[1];
  const double along = x * cos(box[4]) + y * sin(box[4]), across = y * cos(box[4]) - x * sin(box[4]);
  return is_valid && fabs(x) < wide + (c * box[2] + s * box[3]) / 2 &&
         fabs(y) < high + (s * box[2] + c * box[3]) / 2 && fabs(along) < box[2] / 2 + c * wide + s * high &&
         fabs(across) < box[3] / 2 + s * wide + c * high;
}

// One warp: the map of each of the first boxes with an area in the image, as Crop.maps computes it.
extern "C" __global__ void __launch_bounds__(32) place_regions(const __grid_constant__ Regions r) {
  const int lane = threadIdx.x, boxes = r.result[0];
  int placed = 0;
  for (int first = 0; first < boxes && placed < r.count; first += 32) {
    double box[5];
    const bool is_valid = first + lane < boxes && read_box(r, first + lane, box);
    const unsigned votes = __ballot_sync(0xffffffffu, is_valid);
    const int row = placed + __popc(votes & ((1u << lane) - 1));
    placed += __popc(votes);
    if (!is_valid || row >= r.count) continue;
    double step_x = box[2] * r.scale / r.input_width, step_y = box[3] * r.scale / r.input_height;
    if (r.resize != 1) step_x = fmax(step_x, step_y);
    if (r.resize == 0) step_y = step_x;
    const double columns = r.resize == 2 ? box[2] * r.scale / step_x : r.input_width;
    const double c = cos(box[4]), s = sin(box[4]), u = columns / 2., v = r.input_height / 2.;
    const double map[8] = {
        c * step_x, -s * step_y, box[0] - (c * step_x * u - s * step_y * v), columns,
        s * step_x, c * step_y,  box[1] - (s * step_x * u + c * step_y * v), (double)r.input_height};
    for (int k = 0; k < 8; ++k) r.maps[8 * row + k] = r.placed[8 * row + k] = (float)map[k];
    r.chosen[row] = first + lane;
  }
  for (int row = min(placed, r.count) + lane; row < r.rows; row += 32) {
    for (int k = 0; k < 8; ++k) r.maps[8 * row + k] = 0.f;
    r.chosen[row] = -1;
  }
}

#include "copy.cu"
#include "generate.cu"
