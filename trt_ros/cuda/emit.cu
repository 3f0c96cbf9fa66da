// Coordinate x or y of the keypoint whose values begin at extra k.
template <class T> __device__ __forceinline__ float point_of(const Head& h, int row, int k, int axis) {
  const float value = extra_of<T>(h, row, k + (h.has_points && h.is_y_first ? 1 - axis : axis));
  if (T::is_anchored && h.has_points == 2) {
    const Span side = anchored_span<T>(h, row, axis);
    return side.low + value * (side.high - side.low);
  }
  if (T::is_anchored) return h.has_points ? from_anchor(h, anchor_of<T>(h, row, axis), value) : value;
  return h.has_points ? value * (axis ? h.box_height : h.box_width) : value;
}

// Writes the kept boxes, best first, and the header, and resets the counters. The last to run, except
// before masks.
template <class T> __device__ __noinline__ void emit(const Head& h, int kept) {
  unsigned char* out = h.result;
  float4* out_boxes = (float4*)(out + sizeof(Result));
  float* out_scores = (float*)(out_boxes + h.capacity);
  int* out_labels = (int*)(out_scores + h.capacity);
  float* out_extras = (float*)(out_labels + h.capacity);
  const bool is_indirect = suppresses(h);
  __syncthreads();  // The block's own writes to scratch memory.
  for (int i = threadIdx.x; i < kept; i += blockDim.x) {
    const int place = is_indirect ? h.kept[i] : i;
    const u64 key = h.sorted[place];
    const float4 box = h.boxes_sorted[place];
    const int row = row_of(h, key);
    const int label = h.label_kind ? label_at<T>(h, row) : class_of(h, key);
    if (h.form == ROTATED) {
      const Oriented o = oriented_in_image(h, {box.x, box.y, box.z, box.w}, h.shapes_sorted[place].w);
      out_boxes[i] = make_float4(o.x, o.y, o.w, o.h);
      out_extras[i] = o.theta;
    } else {
      const Box b = in_image(h, {box.x, box.y, box.z, box.w});
      out_boxes[i] = make_float4(b.x1, b.y1, b.x2, b.y2);
      if (h.extra_kind == COEFFICIENTS && h.extra_count) {  // Pixels whose centers lie inside.
        h.instances[i] = {(int)ceilf(b.x1 - 0.5f), (int)ceilf(b.y1 - 0.5f), (int)ceilf(b.x2 - 0.5f),
                          (int)ceilf(b.y2 - 0.5f), row, label};
      } else if (h.extra_kind == COEFFICIENTS) {
        h.instances[i] = {0, 0, h.image_width, h.image_height, row, label};
      }
    }
    out_scores[i] = score_of(key);
    out_labels[i] = label;
  }
  if (h.extra_kind == KEYPOINTS_2 || h.extra_kind == KEYPOINTS_3) {
    const int values = h.extra_kind, points = h.extra_count / values;
    for (int i = threadIdx.x; i < kept * points; i += blockDim.x) {
      const int row = row_of(h, h.sorted[is_indirect ? h.kept[i / points] : i / points]);
      const int k = i % points * values;
      const float x = (point_of<T>(h, row, k, 0) - h.pad_x) / h.scale_x;
      const float y = (point_of<T>(h, row, k, 1) - h.pad_y) / h.scale_y;
      const float seen = values == 3 ? extra_of<T>(h, row, k + 2) : 1.f;
      const bool is_valid = is_finite(x) && is_finite(y) && is_finite(seen);
      out_extras[3 * i] = is_valid ? x : 0.f;  // Not visible.
      out_extras[3 * i + 1] = is_valid ? y : 0.f;
      out_extras[3 * i + 2] = is_valid ? seen : 0.f;
    }
  }
  if (h.extra_kind == COEFFICIENTS) {
    for (int i = threadIdx.x; i < kept * h.extra_count; i += blockDim.x) {
      const int place = i / h.extra_count;
      const int row = row_of(h, h.sorted[is_indirect ? h.kept[place] : place]);
      out_extras[i] = extra_of<T>(h, row, i % h.extra_count);
    }
    if (threadIdx.x == 0) h.counters->kept = kept;  // `finish_masks` is the last to run.
    return;
  }
  const Counters counted = *h.counters;
  __syncthreads();  // All threads have read the counters.
  if (threadIdx.x == 0) {
    *h.counters = {};
    *(Result*)out = {kept, counted.candidates, counted.nonfinite, 0};
  }
}
