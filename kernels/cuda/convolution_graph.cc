#include "kernels/cuda/convolution_graph.h"

#include <algorithm>
#include <utility>

namespace catchment::cuda::cudnn {
namespace {

DataType TypeOf(Precision precision) {
  if (precision == Precision::kBfloat16) return DataType::kBfloat16;
  return precision == Precision::kFloat16 ? DataType::kHalf : DataType::kFloat;
}

// cuDNN's dimensions are samples, channels, height and width, regardless of the order in memory.
std::vector<int64_t> Dimensions(int64_t samples, int64_t channels, int64_t height, int64_t width) {
  return {samples, channels, height, width};
}

std::vector<int64_t> ChannelsLast(const std::vector<int64_t>& dimensions) {
  const int64_t channels = dimensions[1], height = dimensions[2], width = dimensions[3];
  return {height * width * channels, 1, width * channels, channels};
}

struct OperationKind {
  Kind kind;
  Attribute alpha, beta, convolution, x, w, y;
};

OperationKind OperationOf(Convolved convolved) {
  switch (convolved) {
    case Convolved::kY:
      return {Kind::kForward,          Attribute::kForwardAlpha,
              Attribute::kForwardBeta, Attribute::kForwardConvolution,
              Attribute::kForwardX,    Attribute::kForwardW,
              Attribute::kForwardY};
    case Convolved::kX:
      return {Kind::kBackwardData,          Attribute::kBackwardDataAlpha,
              Attribute::kBackwardDataBeta, Attribute::kBackwardDataConvolution,
              Attribute::kBackwardDataDx,   Attribute::kBackwardDataW,
              Attribute::kBackwardDataDy};
    case Convolved::kW:
      break;
  }
  return {Kind::kBackwardFilter,          Attribute::kBackwardFilterAlpha,
          Attribute::kBackwardFilterBeta, Attribute::kBackwardFilterConvolution,
          Attribute::kBackwardFilterX,    Attribute::kBackwardFilterDw,
          Attribute::kBackwardFilterDy};
}

}  // namespace

void Check(const Api& api, int status, const char* what) {
  if (status == kSuccess) return;
  char reason[512] = {};
  api.GetLastErrorString(reason, sizeof reason);
  throw Error(std::string(what) + ": " + api.GetErrorString(status) + ", " + reason);
}

Descriptor::Descriptor(const Api& api, Kind kind) : api_(&api) {
  Check(api, api.CreateDescriptor(static_cast<int>(kind), &raw_), "a descriptor of cuDNN");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) api_->DestroyDescriptor(raw_);
}

void Descriptor::Set(Attribute name, Type type, int64_t count, const void* values) {
  Check(*api_, api_->SetAttribute(raw_, static_cast<int>(name), static_cast<int>(type), count, values),
        "an attribute of a descriptor of cuDNN");
}

void Descriptor::Finalize() { Check(*api_, api_->Finalize(raw_), "a descriptor of cuDNN"); }

ConvolutionGraph::ConvolutionGraph(const Api& api, void* handle, Precision precision, Convolved convolved,
                                   const ConvolutionSpec& s)
    : api_(api) {
  const std::vector<int64_t> shapes[] = {
      Dimensions(s.samples, s.channels, s.in_height, s.in_width),
      Dimensions(s.filters, s.channels, s.kernel_size, s.kernel_size),
      Dimensions(s.samples, s.filters, s.out_height, s.out_width),
  };
  const auto result_index = static_cast<size_t>(convolved == Convolved::kX   ? 0
                                                : convolved == Convolved::kW ? 1
                                                                             : 2);
  const std::vector<int64_t>& result_shape = shapes[result_index];
  const bool rounds =
      (convolved == Convolved::kX && s.rounds_x) || (convolved == Convolved::kY && s.rounds_y);
  const DataType factor = TypeOf(precision);
  Descriptor* tensors[3];
  for (size_t i = 0; i < 3; ++i) {
    tensors[i] =
        AddTensor(static_cast<int64_t>(i) + kXId, i == result_index && !rounds ? DataType::kFloat : factor,
                  shapes[i], ChannelsLast(shapes[i]));
  }
  const Descriptor* const result = tensors[result_index];
  int64_t next_id = kFirstVirtualId;
  const auto add_sum = [&] {
    return AddTensor(next_id++, DataType::kFloat, result_shape, ChannelsLast(result_shape),
                     /*is_virtual=*/true);
  };

  // The operations between the convolution and the result.
  std::vector<std::pair<PointwiseMode, const Descriptor*>> last;
  if (convolved == Convolved::kY && s.bias) {
    const std::vector<int64_t> shape = Dimensions(1, s.filters, 1, 1);
    last.emplace_back(PointwiseMode::kAdd, AddTensor(kBiasId, DataType::kFloat, shape, ChannelsLast(shape)));
  }
  if (convolved == Convolved::kY && s.relu) last.emplace_back(PointwiseMode::kRelu, nullptr);
  if (last.empty() && Is16Bit(precision) && !rounds) last.emplace_back(PointwiseMode::kIdentity, nullptr);

  std::vector<void*> operations;
  if (!last.empty()) tensors[result_index] = add_sum();
  const OperationKind kind = OperationOf(convolved);
  const Descriptor& convolution = *AddConvolution(s);
  Descriptor* const operation = Add(kind.kind);
  operation->Set(kind.alpha, Type::kFloat, 1.0f);
  operation->Set(kind.beta, Type::kFloat, 0.0f);
  operation->Set(kind.convolution, convolution);
  operation->Set(kind.x, *tensors[0]);
  operation->Set(kind.w, *tensors[1]);
  operation->Set(kind.y, *tensors[2]);
  operation->Finalize();
  operations.push_back(operation->raw());
  const Descriptor* sum = tensors[result_index];
  for (size_t i = 0; i < last.size(); ++i) {
    const Descriptor* const to = i + 1 == last.size() ? result : add_sum();
    operations.push_back(AddPointwise(last[i].first, *sum, last[i].second, *to)->raw());
    sum = to;
  }

  Descriptor* const graph = Add(Kind::kOperationGraph);
  if (handle != nullptr) graph->Set(Attribute::kGraphHandle, Type::kHandle, handle);
  graph->Set(Attribute::kGraphOperations, Type::kDescriptor, static_cast<int64_t>(operations.size()),
             operations.data());
  graph->Finalize();
}

Descriptor* ConvolutionGraph::Add(Kind kind) {
  parts_.push_back(std::make_unique<Descriptor>(api_, kind));
  return parts_.back().get();
}

Descriptor* ConvolutionGraph::AddTensor(int64_t id, DataType type, const std::vector<int64_t>& dimensions,
                                        const std::vector<int64_t>& strides, bool is_virtual) {
  Descriptor* const tensor = Add(Kind::kTensor);
  tensor->Set(Attribute::kTensorType, Type::kDataType, type);
  tensor->Set(Attribute::kTensorDimensions, dimensions);
  tensor->Set(Attribute::kTensorStrides, strides);
  tensor->Set(Attribute::kTensorId, Type::kInt64, id);
  tensor->Set(Attribute::kTensorAlignment, Type::kInt64, kAlignment);
  if (is_virtual) tensor->Set(Attribute::kTensorIsVirtual, Type::kBoolean, true);
  tensor->Finalize();
  return tensor;
}

Descriptor* ConvolutionGraph::AddPointwise(PointwiseMode mode, const Descriptor& from,
                                           const Descriptor* operand, const Descriptor& to) {
  Descriptor* const function = Add(Kind::kPointwise);
  function->Set(Attribute::kPointwiseMode, Type::kPointwiseMode, mode);
  function->Set(Attribute::kPointwisePrecision, Type::kDataType, DataType::kFloat);
  function->Finalize();
  Descriptor* const operation = Add(Kind::kPointwiseOperation);
  operation->Set(Attribute::kOperationPointwise, *function);
  operation->Set(Attribute::kOperationX, from);
  if (operand != nullptr) operation->Set(Attribute::kOperationB, *operand);
  operation->Set(Attribute::kOperationY, to);
  operation->Finalize();
  return operation;
}

Descriptor* ConvolutionGraph::AddConvolution(const ConvolutionSpec& spec) {
  Descriptor* const convolution = Add(Kind::kConvolution);
  convolution->Set(Attribute::kConvolutionType, Type::kDataType, DataType::kFloat);
  convolution->Set(Attribute::kConvolutionMode, Type::kConvolutionMode, ConvolutionMode::kCrossCorrelation);
  convolution->Set(Attribute::kConvolutionDimensions, Type::kInt64, int64_t{2});
  convolution->Set(Attribute::kConvolutionDilations, {1, 1});
  convolution->Set(Attribute::kConvolutionStrides, {spec.stride, spec.stride});
  convolution->Set(Attribute::kConvolutionPrePaddings, {spec.padding, spec.padding});
  convolution->Set(Attribute::kConvolutionPostPaddings, {spec.padding, spec.padding});
  convolution->Finalize();
  return convolution;
}

namespace {

// Returns whether the configuration's sums are in float32 and in the same order in every run.
bool IsExact(const Api& api, const Descriptor& config) {
  Descriptor engine(api, Kind::kEngine);
  void* raw = engine.raw();
  int64_t count = 0;
  Check(api,
        api.GetAttribute(config.raw(), static_cast<int>(Attribute::kConfigEngine),
                         static_cast<int>(Type::kDescriptor), 1, &count, &raw),
        "cuDNN's engine");
  constexpr int64_t kMaxNotes = 32;
  Note notes[kMaxNotes];
  Check(api,
        api.GetAttribute(engine.raw(), static_cast<int>(Attribute::kEngineNotes),
                         static_cast<int>(Type::kNumericalNote), kMaxNotes, &count, notes),
        "the notes of cuDNN's engine");
  return std::none_of(notes, notes + std::min(count, kMaxNotes), [](Note note) {
    return note == Note::kReducedPrecisionReduction || note == Note::kNondeterministic;
  });
}

}  // namespace

std::vector<Descriptor> ConvolutionGraph::ListConfigs(const Descriptor* device) const {
  std::vector<Descriptor> exact;
  for (const HeuristicsMode mode : {HeuristicsMode::kUsual, HeuristicsMode::kFallback}) {
    Descriptor heuristics(api_, Kind::kEngineHeuristics);
    heuristics.Set(Attribute::kHeuristicsGraph, *parts_.back());
    heuristics.Set(Attribute::kHeuristicsMode, Type::kHeuristicsMode, mode);
    if (device != nullptr) heuristics.Set(Attribute::kHeuristicsDevice, *device);
    // It fails if cuDNN does not support such a graph.
    if (api_.Finalize(heuristics.raw()) != kSuccess) continue;
    constexpr int64_t kMaxConfigs = 64;
    std::vector<Descriptor> configs;
    std::vector<void*> raw;
    for (int64_t i = 0; i < kMaxConfigs; ++i) {
      configs.emplace_back(api_, Kind::kEngineConfig);
      raw.push_back(configs.back().raw());
    }
    int64_t count = 0;
    Check(api_,
          api_.GetAttribute(heuristics.raw(), static_cast<int>(Attribute::kHeuristicsResults),
                            static_cast<int>(Type::kDescriptor), kMaxConfigs, &count, raw.data()),
          "cuDNN's configurations");
    for (int64_t i = 0; i < std::min(count, kMaxConfigs); ++i) {
      if (IsExact(api_, configs[i])) exact.push_back(std::move(configs[i]));
    }
  }
  return exact;
}

}  // namespace catchment::cuda::cudnn
