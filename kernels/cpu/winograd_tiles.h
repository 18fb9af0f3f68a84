// A convolution of blocked images (eight channels side by side) cut into tiles for Winograd's F(4x4, 3x3),
// and the transformed values of some tiles at a time: winograd.h has the formulas.
#ifndef CATCHMENT_KERNELS_CPU_WINOGRAD_TILES_H_
#define CATCHMENT_KERNELS_CPU_WINOGRAD_TILES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/winograd_transforms.h"

namespace catchment::winograd {

constexpr int64_t kBlock = 8;  // channels side by side
constexpr int kIn = 6;         // height and width of an input tile
constexpr int kOut = 4;        // of an output tile
constexpr int kPlaces = 36;    // of a transformed tile
constexpr int kTileRows = 6;   // tiles that one product takes at a time

inline Vector Load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void Store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }

inline dnnl::memory::desc Floats(int64_t size) { return PlainLayout({size}); }
inline float* Data(const dnnl::memory& m) { return static_cast<float*>(m.get_data_handle()); }

// The tiles of a convolution: of the forward pass, or of the gradient of the input.
struct Tiling {
  int64_t batch, channels, filters;  // in, out
  int64_t height, width, padding;    // of the input
  int64_t out_height, out_width;

  int64_t tile_rows() const { return (out_height + kOut - 1) / kOut; }
  int64_t tile_columns() const { return (out_width + kOut - 1) / kOut; }
  int64_t tiles() const { return batch * tile_rows() * tile_columns(); }
  // Returns the number of tiles whose transformed values fit into the second-level cache.
  int64_t tiles_at_once() const {
    constexpr int64_t kCache = 48 << 10;  // floats
    return std::max<int64_t>(1, kCache / (kPlaces * (channels + filters)) / kTileRows) * kTileRows;
  }
  int64_t weights() const { return kPlaces * channels * filters; }
};

// The transformed values of some tiles: of the input, place x tile x channel; of the output, place x block of
// eight filters x tile x 8. Each thread has one. In the functions `first` is the first tile's index in the
// minibatch.
class TileBuffer {
 public:
  TileBuffer(CpuContext* context, const Tiling& tiling);

  void TransformInput(const float* input, int64_t first, int64_t count);
  void TransformOutputGradient(const float* gradient, int64_t first, int64_t count);
  // Computes out = in weights, place by place. `weights`: place x block of eight filters x channel x 8.
  void Multiply(const float* weights, int64_t count);
  // Computes d_weights += in' out, place by place.
  void AddToWeights(int64_t count, float* d_weights);
  // `bias` may be null.
  void WriteOutput(int64_t first, int64_t count, const float* bias, bool relu, float* output) const;

 private:
  float* in(int place) const { return Data(in_) + place * tiles_ * tiling_.channels; }
  float* out(int place, int64_t block) const {
    return Data(out_) + (place * tiling_.filters / kBlock + block) * tiles_ * kBlock;
  }
  int64_t out_block() const { return tiles_ * kBlock; }

  Tiling tiling_;
  int64_t tiles_;
  dnnl::memory in_, out_;
};

// Splits tiles over threads, each with its buffer, some tiles at a time.
class Tiles {
 public:
  Tiles(CpuContext* context, const Tiling& tiling) : tiling_(tiling), at_once_(tiling.tiles_at_once()) {
    const int64_t pieces = (tiling.tiles() + at_once_ - 1) / at_once_;
    for (int64_t i = 0; i < std::min<int64_t>(context->threads(), pieces); ++i) {
      buffers_.emplace_back(context, tiling);
    }
  }

  int parts() const { return static_cast<int>(buffers_.size()); }

  // Calls f(part, buffer, first tile, count).
  template <typename F>
  void ForEach(F f) {
    ParallelFor(parts(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t last = tiling_.tiles() * (part + 1) / parts();
        for (int64_t first = tiling_.tiles() * part / parts(); first < last; first += at_once_) {
          f(part, &buffers_[part], first, std::min(at_once_, last - first));
        }
      }
    });
  }

 private:
  Tiling tiling_;
  int64_t at_once_;
  std::vector<TileBuffer> buffers_;
};

}  // namespace catchment::winograd

#endif  // CATCHMENT_KERNELS_CPU_WINOGRAD_TILES_H_
