// A convolution as a graph of cuDNN's operations, and the ways that cuDNN has to compute it.
//
// Images are samples x height x width x channels, weights filters x height x width x channels. Factors have
// the precision of products; sums are float32, and are written so unless they are to be rounded to 16 bits.
// cuDNN's convolutions of 16 bits end in 16 bits; with a further operation in the graph it compiles a kernel
// that writes the sums as they are. A bias and a relu are such operations, too.
#ifndef CATCHMENT_KERNELS_CUDA_CONVOLUTION_GRAPH_H_
#define CATCHMENT_KERNELS_CUDA_CONVOLUTION_GRAPH_H_

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_api.h"
#include "kernels/cuda/precision.h"

namespace catchment::cuda {

struct ConvolutionSpec {
  int64_t samples, channels, in_height, in_width;
  int64_t filters, out_height, out_width;
  int64_t kernel_size, stride, padding;
  bool bias = false, relu = false;          // of the output, if it is computed
  bool rounds_x = false, rounds_y = false;  // the result has the 16 bits of factors
};

// The one of images x, weights w and output y that is computed from the other two.
enum class Convolved { kY, kX, kW };

// Returns true if cuDNN's gradient of the weights has a tile for half of an H100's 132 multiprocessors. For
// factors of 16 bits and a float32 result cuDNN 9.19 has one engine: a multiprocessor computes 64 filters x
// 256 values of the window, and the sum over the images is not split. For TF32 it has engines that split it.
inline bool FillsProcessors(Precision precision, const ConvolutionSpec& s) {
  constexpr int64_t kTileFilters = 64, kTileValues = 256, kFewestTiles = 66;
  const auto tiles = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  const int64_t values = s.kernel_size * s.kernel_size * s.channels;
  return !Is16Bit(precision) || tiles(s.filters, kTileFilters) * tiles(values, kTileValues) >= kFewestTiles;
}

namespace cudnn {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The numbers of the tensors in a graph.
enum TensorId : int64_t { kXId = 1, kWId = 2, kYId = 3, kBiasId = 4, kFirstVirtualId = 5 };

// The alignment in bytes of all tensors.
constexpr int64_t kAlignment = 16;

// A descriptor of the library. Functions throw an Error with the library's reason.
class Descriptor {
 public:
  Descriptor(const Api& api, Kind kind);
  Descriptor(Descriptor&& other) noexcept : api_(other.api_), raw_(other.raw_) { other.raw_ = nullptr; }
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  void* raw() const { return raw_; }
  void Set(Attribute name, Type type, int64_t count, const void* values);
  template <typename T>
  void Set(Attribute name, Type type, const T& value) {
    Set(name, type, 1, &value);
  }
  void Set(Attribute name, const std::vector<int64_t>& values) {
    Set(name, Type::kInt64, static_cast<int64_t>(values.size()), values.data());
  }
  void Set(Attribute name, const Descriptor& value) { Set(name, Type::kDescriptor, value.raw_); }
  void Finalize();

 private:
  const Api* api_;
  void* raw_ = nullptr;
};

// Throws an Error with the library's reason unless the call `what` has succeeded.
void Check(const Api& api, int status, const char* what);

class ConvolutionGraph {
 public:
  // `handle` is that of the device; null for a device that is described by a descriptor, from cuDNN 9.8 on.
  ConvolutionGraph(const Api& api, void* handle, Precision precision, Convolved convolved,
                   const ConvolutionSpec& spec);

  // Returns the configurations that compute the graph, the best first. They sum in float32, and in the same
  // order in every run. `device` describes another device than that of the handle, or is null.
  std::vector<Descriptor> ListConfigs(const Descriptor* device) const;

 private:
  Descriptor* Add(Kind kind);
  Descriptor* AddTensor(int64_t id, DataType type, const std::vector<int64_t>& dimensions,
                        const std::vector<int64_t>& strides, bool is_virtual = false);
  // Adds an operation on every value of `from`, with an operand that may be null, and returns it.
  Descriptor* AddPointwise(PointwiseMode mode, const Descriptor& from, const Descriptor* operand,
                           const Descriptor& to);
  Descriptor* AddConvolution(const ConvolutionSpec& spec);

  const Api& api_;
  // All that the graph consists of; the library may refer to each. The last one is the graph.
  std::vector<std::unique_ptr<Descriptor>> parts_;
};

}  // namespace cudnn
}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_CONVOLUTION_GRAPH_H_
