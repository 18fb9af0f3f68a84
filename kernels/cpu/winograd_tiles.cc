#include "kernels/cpu/winograd_tiles.h"

#include <cstring>
#include <type_traits>

namespace catchment::winograd {
namespace {

constexpr int kWeightRows = 4;  // channels that one product of the weights' gradient takes at a time

struct Tile {
  Tile(const Tiling& tiling, int64_t index)
      : sample(index / (tiling.tile_rows() * tiling.tile_columns())),
        y(index / tiling.tile_columns() % tiling.tile_rows() * kOut),
        x(index % tiling.tile_columns() * kOut) {}

  int64_t sample, y, x;  // of its first output
};

// Sets tile (kSize x kSize vectors) to the values from (y, x) on of a plane of height x width x 8 values; 0
// outside of it.
template <int kSize>
void Gather(const float* plane, int64_t height, int64_t width, int64_t y, int64_t x, Vector* tile) {
  if (y >= 0 && x >= 0 && y + kSize <= height && x + kSize <= width) {
    for (int i = 0; i < kSize; ++i) {
      const float* const row = plane + ((y + i) * width + x) * kBlock;
      for (int j = 0; j < kSize; ++j) tile[i * kSize + j] = Load(row + j * kBlock);
    }
    return;
  }
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < kSize; ++j) {
      const bool inside = y + i >= 0 && y + i < height && x + j >= 0 && x + j < width;
      tile[i * kSize + j] = inside ? Load(plane + ((y + i) * width + x + j) * kBlock) : Vector{};
    }
  }
}

// out[v * out_block + r * 8 ...] = (kAdd: +=) sum over `steps` of a[r * a_row] * b[v * b_block ...], with `a`
// moving by a_step and `b` by 8 in each step; r < kRows, v < kVectors, and each stands for eight values.
template <int kRows, int kVectors, bool kAdd>
void Product(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_block, int64_t steps,
             float* out, int64_t out_block) {
  __m256 sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAdd ? _mm256_load_ps(out + v * out_block + r * kBlock) : _mm256_setzero_ps();
    }
  }
  for (int64_t s = 0; s < steps; ++s, a += a_step, b += kBlock) {
    __m256 right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) right[v] = _mm256_load_ps(b + v * b_block);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 left = _mm256_broadcast_ss(a + r * a_row);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm256_fmadd_ps(left, right[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) _mm256_store_ps(out + v * out_block + r * kBlock, sum[r][v]);
  }
}

// Calls f(vectors as a constant, first block) for two blocks of eight filters at a time, and for a remaining
// one.
template <typename F>
void ForEachBlocks(int64_t filters, F f) {
  const int64_t blocks = filters / kBlock;
  int64_t block = 0;
  for (; block + 2 <= blocks; block += 2) f(std::integral_constant<int, 2>(), block);
  if (block < blocks) f(std::integral_constant<int, 1>(), block);
}

}  // namespace

TileBuffer::TileBuffer(CpuContext* context, const Tiling& tiling)
    : tiling_(tiling),
      tiles_(tiling.tiles_at_once()),
      in_(context->Allocate(Floats(kPlaces * tiles_ * tiling.channels))),
      out_(context->Allocate(Floats(kPlaces * tiles_ * tiling.filters))) {
  std::memset(Data(in_), 0, in_.get_desc().get_size());  // tiles beyond the last are read, not used
}

void TileBuffer::TransformInput(const float* input, int64_t first, int64_t count) {
  const int64_t blocks = tiling_.channels / kBlock, plane = tiling_.height * tiling_.width * kBlock;
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile(tiling_, first + t);
    for (int64_t block = 0; block < blocks; ++block) {
      Vector d[kPlaces], v[kPlaces];
      Gather<kIn>(input + (tile.sample * blocks + block) * plane, tiling_.height, tiling_.width,
                  tile.y - tiling_.padding, tile.x - tiling_.padding, d);
      Transform<kIn, kIn>(d, v, InputTransform());
      for (int p = 0; p < kPlaces; ++p) Store(in(p) + t * tiling_.channels + block * kBlock, v[p]);
    }
  }
}

void TileBuffer::TransformOutputGradient(const float* gradient, int64_t first, int64_t count) {
  const int64_t blocks = tiling_.filters / kBlock, plane = tiling_.out_height * tiling_.out_width * kBlock;
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile(tiling_, first + t);
    for (int64_t block = 0; block < blocks; ++block) {
      Vector d[kOut * kOut], z[kPlaces];
      Gather<kOut>(gradient + (tile.sample * blocks + block) * plane, tiling_.out_height, tiling_.out_width,
                   tile.y, tile.x, d);
      Transform<kOut, kIn>(d, z, OutputGradientTransform());
      for (int p = 0; p < kPlaces; ++p) Store(out(p, block) + t * kBlock, z[p]);
    }
  }
}

void TileBuffer::Multiply(const float* weights, int64_t count) {
  const int64_t channels = tiling_.channels, filters = tiling_.filters;
  for (int p = 0; p < kPlaces; ++p) {
    ForEachBlocks(filters, [&](auto vectors, int64_t block) {
      const float* const w = weights + (p * filters / kBlock + block) * channels * kBlock;
      for (int64_t t = 0; t < count; t += kTileRows) {
        Product<kTileRows, vectors, false>(in(p) + t * channels, channels, 1, w, channels * kBlock, channels,
                                           out(p, block) + t * kBlock, out_block());
      }
    });
  }
}

void TileBuffer::AddToWeights(int64_t count, float* d_weights) {
  const int64_t channels = tiling_.channels, filters = tiling_.filters;
  for (int p = 0; p < kPlaces; ++p) {
    ForEachBlocks(filters, [&](auto vectors, int64_t block) {
      float* const w = d_weights + (p * filters / kBlock + block) * channels * kBlock;
      for (int64_t c = 0; c < channels; c += kWeightRows) {
        Product<kWeightRows, vectors, true>(in(p) + c, 1, channels, out(p, block), out_block(), count,
                                            w + c * kBlock, channels * kBlock);
      }
    });
  }
}

void TileBuffer::WriteOutput(int64_t first, int64_t count, const float* bias, bool relu,
                             float* output) const {
  const int64_t blocks = tiling_.filters / kBlock, plane = tiling_.out_height * tiling_.out_width * kBlock;
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile(tiling_, first + t);
    const int64_t rows = std::min<int64_t>(kOut, tiling_.out_height - tile.y);
    const int64_t columns = std::min<int64_t>(kOut, tiling_.out_width - tile.x);
    for (int64_t block = 0; block < blocks; ++block) {
      Vector m[kPlaces], y[kOut * kOut];
      for (int p = 0; p < kPlaces; ++p) m[p] = Load(out(p, block) + t * kBlock);
      Transform<kIn, kOut>(m, y, OutputTransform());
      const Vector shift = bias != nullptr ? Vector(_mm256_loadu_ps(bias + block * kBlock)) : Vector{};
      float* const to =
          output + (tile.sample * blocks + block) * plane + (tile.y * tiling_.out_width + tile.x) * kBlock;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          Vector value = y[i * kOut + j] + shift;
          if (relu) value = _mm256_max_ps(value, _mm256_setzero_ps());
          Store(to + (i * tiling_.out_width + j) * kBlock, value);
        }
      }
    }
  }
}

}  // namespace catchment::winograd
