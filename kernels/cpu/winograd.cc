#include "kernels/cpu/winograd.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/winograd_tiles.h"

namespace catchment {
namespace {

using dnnl::memory;
using winograd::Data;
using winograd::Floats;
using winograd::kBlock;
using winograd::kIn;
using winograd::kPlaces;
using winograd::Load;
using winograd::Store;
using winograd::TileBuffer;
using winograd::Tiles;
using winograd::Tiling;
using winograd::Transform;
using winograd::Vector;

// The convolution from `source` to `output`.
class Convolution {
 public:
  Convolution(CpuContext* context, const Tiling& tiling)
      : tiling_(tiling), tiles_(context, tiling), weights_(context->Allocate(Floats(tiling.weights()))) {}

  // `weight` is filters x channels x 3 x 3; with `turned` it is channels x filters x 3 x 3, each kernel
  // turned by 180 degrees.
  void TransformWeights(const float* weight, bool turned) {
    const int64_t channels = tiling_.channels, filters = tiling_.filters;
    ParallelFor(filters / kBlock, (1 << 8) / channels + 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        for (int64_t c = 0; c < channels; ++c) {
          Vector g[9], u[kPlaces];
          for (int64_t lane = 0; lane < kBlock; ++lane) {
            const int64_t f = block * kBlock + lane;
            const float* const from = weight + 9 * (turned ? c * filters + f : f * channels + c);
            for (int i = 0; i < 9; ++i) g[i][lane] = from[turned ? 8 - i : i];
          }
          Transform<3, kIn>(g, u, winograd::WeightTransform());
          for (int p = 0; p < kPlaces; ++p) {
            Store(Data(weights_) + ((p * filters / kBlock + block) * channels + c) * kBlock, u[p]);
          }
        }
      }
    });
  }

  void Run(const float* source, const float* bias, bool relu, float* output) {
    tiles_.ForEach([&](int64_t, TileBuffer* buffer, int64_t first, int64_t count) {
      buffer->TransformInput(source, first, count);
      buffer->Multiply(Data(weights_), count);
      buffer->WriteOutput(first, count, bias, relu, output);
    });
  }

 private:
  Tiling tiling_;
  Tiles tiles_;
  memory weights_;  // place x block of eight filters x channel x 8
};

Tiling ForwardTiling(const ConvGeometry& g) {
  return {g.source[0], g.source[1],  g.output[1], g.source[2],
          g.source[3], g.padding[0], g.output[2], g.output[3]};
}

Tiling DataTiling(const ConvGeometry& g) {
  return {g.source[0], g.output[1],      g.source[1], g.output[2],
          g.output[3], 2 - g.padding[0], g.source[2], g.source[3]};
}

class Forward final : public ConvForward {
 public:
  Forward(CpuContext* context, const ConvGeometry& g, const ConvDescription& description,
          const memory& source)
      : relu_(description.relu),
        has_bias_(g.has_bias),
        weight_size_(g.weight_size()),
        source_(context, source, description.source),
        output_(context, description.output),
        convolution_(context, ForwardTiling(g)) {}

  const memory& source() const override { return source_.memory(); }
  CpuActivation* output() override { return &output_; }

  void Run(const float* parameters, float*) override {
    source_.Pull();
    convolution_.TransformWeights(parameters, false);
    convolution_.Run(Data(source_.memory()), has_bias_ ? parameters + weight_size_ : nullptr, relu_,
                     output_.value_data());
  }

 private:
  bool relu_;
  bool has_bias_;
  int64_t weight_size_;
  ReadPort source_;
  CpuActivation output_;
  Convolution convolution_;
};

class BackwardData final : public ConvPass {
 public:
  BackwardData(CpuContext* context, const ConvGeometry& g, const ConvDescription& description,
               const memory& d_source, const memory& d_output)
      : d_source_(context, d_source, description.source),
        d_output_(context, d_output, description.output),
        convolution_(context, DataTiling(g)) {}

  void Run(const float* parameters, float*) override {
    d_output_.Pull();
    convolution_.TransformWeights(parameters, true);
    convolution_.Run(Data(d_output_.memory()), nullptr, false, Data(d_source_.memory()));
    d_source_.Push();
  }

 private:
  WritePort d_source_;
  ReadPort d_output_;
  Convolution convolution_;
};

class BackwardWeights final : public ConvPass {
 public:
  BackwardWeights(CpuContext* context, const ConvGeometry& g, const ConvDescription& description,
                  const memory& source, const memory& d_output)
      : g_(g),
        tiling_(ForwardTiling(g)),
        source_(context, source, description.source),
        d_output_(context, d_output, description.output),
        tiles_(context, tiling_) {
    for (int part = 0; part < tiles_.parts(); ++part) {
      sums_.push_back(context->Allocate(Floats(tiling_.weights())));
    }
  }

  void Run(const float*, float* gradient) override {
    source_.Pull();
    d_output_.Pull();
    for (const memory& sum : sums_) std::memset(Data(sum), 0, tiling_.weights() * sizeof(float));
    tiles_.ForEach([&](int64_t part, TileBuffer* buffer, int64_t first, int64_t count) {
      buffer->TransformInput(Data(source_.memory()), first, count);
      buffer->TransformOutputGradient(Data(d_output_.memory()), first, count);
      buffer->AddToWeights(count, Data(sums_[part]));
    });
    WriteWeights(gradient);
    if (g_.has_bias) WriteBias(gradient + g_.weight_size());
  }

 private:
  void WriteWeights(float* gradient) const {
    const int64_t channels = tiling_.channels, filters = tiling_.filters;
    ParallelFor(filters / kBlock, (1 << 8) / channels + 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        for (int64_t c = 0; c < channels; ++c) {
          Vector u[kPlaces], g[9];
          for (int p = 0; p < kPlaces; ++p) {
            const int64_t at = ((p * filters / kBlock + block) * channels + c) * kBlock;
            u[p] = Load(Data(sums_[0]) + at);
            for (size_t part = 1; part < sums_.size(); ++part) u[p] += Load(Data(sums_[part]) + at);
          }
          Transform<kIn, 3>(u, g, winograd::WeightGradientTransform());
          for (int64_t lane = 0; lane < kBlock; ++lane) {
            float* const to = gradient + 9 * ((block * kBlock + lane) * channels + c);
            for (int i = 0; i < 9; ++i) to[i] = g[i][lane];
          }
        }
      }
    });
  }

  void WriteBias(float* gradient) const {
    const int64_t blocks = tiling_.filters / kBlock, positions = tiling_.out_height * tiling_.out_width;
    ParallelFor(blocks, (1 << 14) / (tiling_.batch * positions) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        Vector total = {};
        for (int64_t sample = 0; sample < tiling_.batch; ++sample) {
          const float* d = Data(d_output_.memory()) + (sample * blocks + block) * positions * kBlock;
          Vector sum = {};
          for (int64_t i = 0; i < positions; ++i, d += kBlock) sum += Load(d);
          total += sum;
        }
        _mm256_storeu_ps(gradient + block * kBlock, total);
      }
    });
  }

  ConvGeometry g_;
  Tiling tiling_;
  ReadPort source_;
  ReadPort d_output_;
  Tiles tiles_;
  std::vector<memory> sums_;  // of each part, in the layout of Convolution::weights_
};

}  // namespace

std::optional<ConvDescription> DescribeTiledWinograd(const ConvGeometry& g, bool relu) {
  constexpr int64_t kMaxWeights = 1 << 16;  // as many transformed ones take 9 MB
  const bool fits = g.groups == 1 && g.kernel_size() == 3 && g.stride[0] == 1 && g.padding[0] <= 2 &&
                    g.source[1] % kBlock == 0 && g.output[1] % kBlock == 0 &&
                    g.source[1] * g.output[1] <= kMaxWeights;
  if (!fits) return std::nullopt;
  const auto blocked = [](const memory::dims& dims) {
    return memory::desc(dims, memory::data_type::f32, memory::format_tag::nChw8c);
  };
  return ConvDescription{.algorithm = ConvAlgorithm::kTiledWinograd,
                         .implementation = "winograd",
                         .source = blocked(g.source),
                         .weight = PlainLayout(g.weight),
                         .output = blocked(g.output),
                         .relu = relu};
}

std::unique_ptr<ConvForward> MakeWinogradForward(CpuContext* context, const ConvGeometry& g,
                                                 const ConvDescription& description, const memory& source) {
  return std::make_unique<Forward>(context, g, description, source);
}

std::unique_ptr<ConvPass> MakeWinogradBackwardWeights(CpuContext* context, const ConvGeometry& g,
                                                      const ConvDescription& description,
                                                      const memory& source, const memory& d_output) {
  return std::make_unique<BackwardWeights>(context, g, description, source, d_output);
}

std::unique_ptr<ConvPass> MakeWinogradBackwardData(CpuContext* context, const ConvGeometry& g,
                                                   const ConvDescription& description, const memory& d_source,
                                                   const memory& d_output) {
  return std::make_unique<BackwardData>(context, g, description, d_source, d_output);
}

}  // namespace catchment
