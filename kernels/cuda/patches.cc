#include "kernels/cuda/patches.h"

#include "kernels/cuda/divisor.h"
#include "kernels/cuda/pack.h"

namespace catchment::cuda {
namespace {

// Sets patches to the values of `rows` windows of group `group`; `in` is the beginning of the first window's
// sample, in float32 or in the 16 bits of patches. Each thread writes a pack of channels.
template <int kWidth, typename T>
void Gather(Device* device, const Window& w, int group, int64_t rows, const T* in,
            const FactorWriter& patches) {
  const int first_channel = group * w.channels, row_values = w.row_values();
  const Divisor by_row(w.stride_of_rows / kWidth), by_channels(w.channels / kWidth), by_size(w.columns.size);
  const Divisor by_out_width(w.columns.out), by_out_height(w.rows.out);
  device->ForEach(rows * w.stride_of_rows / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
    int pack, channel_pack, kx, out_x, out_y;
    const int row = by_row.Divide(i, &pack);
    const int ky = by_size.Divide(by_channels.Divide(pack, &channel_pack), &kx);
    const int sample = by_out_height.Divide(by_out_width.Divide(row, &out_x), &out_y);
    const int x = w.columns.Input(out_x, kx), y = w.rows.Input(out_y, ky);
    Pack<kWidth, T> values = {};
    if (pack * kWidth < row_values && x >= 0 && x < w.in_width && y >= 0 && y < w.in_height) {
      const int pixel = (sample * w.in_height + y) * w.in_width + x;
      values = LoadPack<kWidth>(in + int64_t{pixel} * w.in_channels + first_channel + channel_pack * kWidth);
    }
    patches.Write(int64_t{i} * kWidth, values);
  });
}

// Sets d_in, for every input value of these samples, to the sum over the windows that contain it.
template <int kWidth>
void GatherBack(Device* device, const Window& w, int group, int64_t first_sample, int64_t samples,
                const float* d_patches, const FactorWriter& d_in) {
  const int64_t first_pixel = first_sample * w.in_height * w.in_width;
  const int first_channel = group * w.channels;
  const Divisor by_channels(w.channels / kWidth), by_width(w.in_width), by_height(w.in_height);
  device->ForEach(samples * w.in_height * w.in_width * w.channels / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
    int pack, x, y;
    const int pixel = by_channels.Divide(i, &pack), sample = by_height.Divide(by_width.Divide(pixel, &x), &y);
    Pack<kWidth> sum = {};
    ForEachWindowOver(w.rows, w.columns, y, x, [&](int out_y, int out_x, int ky, int kx) {
      const int row = (sample * w.rows.out + out_y) * w.columns.out + out_x;
      const int at = (ky * w.columns.size + kx) * w.channels + pack * kWidth;
      const auto part = LoadPack<kWidth>(d_patches + int64_t{row} * w.stride_of_rows + at);
      for (int k = 0; k < kWidth; ++k) sum.at[k] += part.at[k];
    });
    d_in.Write((first_pixel + pixel) * w.in_channels + first_channel + pack * kWidth, sum);
  });
}

}  // namespace

Window WindowOf(const Device& device, const CatchmentCudaLayer& spec) {
  Window window = {static_cast<int>(spec.input.height),
                   static_cast<int>(spec.input.width),
                   static_cast<int>(spec.input.channels),
                   Steps(spec.output.height, spec.kernel_size, spec.stride, spec.padding),
                   Steps(spec.output.width, spec.kernel_size, spec.stride, spec.padding),
                   static_cast<int>(spec.input.channels / spec.groups),
                   0};
  // With 32 bits pointwise patches are the input itself.
  window.stride_of_rows = window.is_pointwise() && !Is16Bit(device.precision())
                              ? window.channels
                              : static_cast<int>(RoundedUp(device, window.row_values()));
  return window;
}

void GatherPatches(Device* device, const Window& window, int group, const Tensor& input, int64_t first_sample,
                   int64_t samples, const FactorWriter& patches) {
  const int64_t first = first_sample * input.sample_size(),
                rows = samples * window.rows.out * window.columns.out;
  WithPackWidth<8>(window.channels, [&](auto width) {
    if (input.is_rounded()) {
      const auto* const in = reinterpret_cast<const uint16_t*>(input.value);
      Gather<width()>(device, window, group, rows, in + first, patches);
    } else {
      Gather<width()>(device, window, group, rows, input.value + first, patches);
    }
  });
}

void GatherInputGradient(Device* device, const Window& window, int group, const Tensor& input,
                         int64_t first_sample, int64_t samples, const float* d_patches) {
  WithPackWidth<4>(window.channels, [&](auto width) {
    GatherBack<width()>(device, window, group, first_sample, samples, d_patches,
                        {input.gradient, input.storage});
  });
}

}  // namespace catchment::cuda
