// The functions of cuDNN that the plugin calls, with CATCHMENT_PTX_CUDNN=1 in the environment; otherwise
// there is no cuDNN. They execute graphs of one convolution and operations on its values in plain loops, and
// check what the library would check or silently read wrongly: that what a descriptor refers to is finalized,
// shapes, alignments, and that each tensor lies in its allocation. As the library, it has no convolution of
// 16 bits that ends in float32 without another operation.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/convolution_graph.h"
#include "tests/kernels/cuda/ptx/runtime.h"

namespace catchment::ptx {
namespace {

using cuda::cudnn::Attribute;
using cuda::cudnn::DataType;
using cuda::cudnn::Kind;
using cuda::cudnn::Note;
using cuda::cudnn::PointwiseMode;
using cuda::cudnn::Type;

constexpr int kNotSupported = 3000, kBadParameter = 2000;

[[noreturn]] void CudnnFault(const std::string& what) { Fault("cuDNN: " + what); }

struct Tensor {
  int64_t id = 0;
  DataType type = DataType::kFloat;
  std::array<int64_t, 4> dimensions = {}, strides = {};  // samples, channels, height, width
  int64_t alignment = 1;
  bool is_virtual = false;

  int64_t value_bytes() const { return type == DataType::kFloat ? 4 : 2; }
  int64_t size() const { return dimensions[0] * dimensions[1] * dimensions[2] * dimensions[3]; }
  int64_t bytes() const {
    int64_t last = 0;
    for (int i = 0; i < 4; ++i) last += (dimensions[i] - 1) * strides[i];
    return (last + 1) * value_bytes();
  }
  int64_t At(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  // Tensor cores read the 19 highest bits of float32.
  float Read(const void* data, int64_t at) const {
    if (type == DataType::kFloat)
      return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<const float*>(data)[at]) & ~0x1fffu);
    const uint16_t bits = static_cast<const uint16_t*>(data)[at];
    if (type == DataType::kBfloat16) return std::bit_cast<float>(uint32_t{bits} << 16);
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }
  void Write(void* data, int64_t at, float value) const {
    if (type == DataType::kFloat) {
      static_cast<float*>(data)[at] = value;
    } else {
      static_cast<uint16_t*>(data)[at] =
          type == DataType::kBfloat16 ? cuda::RoundToBfloat16(value) : cuda::RoundToFloat16(value);
    }
  }
};

struct Program {
  struct Step {
    PointwiseMode mode;
    std::optional<Tensor> operand;
  };
  Kind kind;
  Tensor x, w, y;  // of the convolution; one of them may be virtual
  int64_t stride, padding;
  std::vector<Step> steps;
  Tensor result;

  const Tensor& convolved() const { return kind == Kind::kForward ? y : kind == Kind::kBackwardData ? x : w; }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all = {result};
    for (const Tensor& tensor : {x, w, y}) {
      if (tensor.id != convolved().id) all.push_back(tensor);
    }
    for (const Step& step : steps) {
      if (step.operand) all.push_back(*step.operand);
    }
    return all;
  }
};

struct Object {
  Kind kind;
  bool finalized = false;
  std::map<Attribute, std::vector<char>> values;
  std::shared_ptr<const Program> program;  // of a graph, a configuration, an engine or a plan
  int choice = 0;                          // of a configuration, an engine or a plan

  template <typename T>
  std::vector<T> All(Attribute name) const {
    const auto found = values.find(name);
    if (found == values.end() || found->second.size() % sizeof(T) != 0)
      CudnnFault("attribute " + std::to_string(static_cast<int>(name)) + " is missing");
    std::vector<T> all(found->second.size() / sizeof(T));
    std::memcpy(all.data(), found->second.data(), found->second.size());
    return all;
  }
  template <typename T>
  T One(Attribute name) const {
    const std::vector<T> all = All<T>(name);
    if (all.size() != 1)
      CudnnFault("attribute " + std::to_string(static_cast<int>(name)) + " has several values");
    return all[0];
  }
  const Object& Part(Attribute name) const { return *One<const Object*>(name); }
};

struct Handle {
  void* stream = nullptr;
};

std::array<int64_t, 4> Four(const std::vector<int64_t>& values) {
  if (values.size() != 4) CudnnFault("a tensor without four dimensions");
  return {values[0], values[1], values[2], values[3]};
}

Tensor TensorOf(const Object& object) {
  Tensor tensor;
  tensor.id = object.One<int64_t>(Attribute::kTensorId);
  tensor.type = object.One<DataType>(Attribute::kTensorType);
  tensor.dimensions = Four(object.All<int64_t>(Attribute::kTensorDimensions));
  tensor.strides = Four(object.All<int64_t>(Attribute::kTensorStrides));
  tensor.alignment = object.One<int64_t>(Attribute::kTensorAlignment);
  tensor.is_virtual = object.values.contains(Attribute::kTensorIsVirtual);
  return tensor;
}

void CheckShapes(const Program& p) {
  const auto& [samples, channels, height, width] = p.x.dimensions;
  const auto& [filters, inner, rows, columns] = p.w.dimensions;
  const auto out = [&](int64_t size, int64_t window) {
    return (size + 2 * p.padding - window) / p.stride + 1;
  };
  const std::array<int64_t, 4> expected = {samples, filters, out(height, rows), out(width, columns)};
  if (inner != channels || p.y.dimensions != expected || p.result.dimensions != p.convolved().dimensions)
    CudnnFault("shapes that do not match");
}

std::shared_ptr<const Program> ProgramOf(const Object& graph) {
  auto program = std::make_shared<Program>();
  const auto operations = graph.All<const Object*>(Attribute::kGraphOperations);
  const Object& first = *operations.at(0);
  const auto name = [&first](Attribute forward, Attribute data, Attribute filter) {
    return first.kind == Kind::kForward ? forward : first.kind == Kind::kBackwardData ? data : filter;
  };
  using A = Attribute;
  if (first.One<float>(name(A::kForwardAlpha, A::kBackwardDataAlpha, A::kBackwardFilterAlpha)) != 1 ||
      first.One<float>(name(A::kForwardBeta, A::kBackwardDataBeta, A::kBackwardFilterBeta)) != 0)
    CudnnFault("a convolution with factors");
  program->kind = first.kind;
  program->x = TensorOf(first.Part(name(A::kForwardX, A::kBackwardDataDx, A::kBackwardFilterX)));
  program->w = TensorOf(first.Part(name(A::kForwardW, A::kBackwardDataW, A::kBackwardFilterDw)));
  program->y = TensorOf(first.Part(name(A::kForwardY, A::kBackwardDataDy, A::kBackwardFilterDy)));
  const Object& convolution =
      first.Part(name(A::kForwardConvolution, A::kBackwardDataConvolution, A::kBackwardFilterConvolution));
  program->stride = convolution.All<int64_t>(Attribute::kConvolutionStrides).at(0);
  program->padding = convolution.All<int64_t>(Attribute::kConvolutionPrePaddings).at(0);
  Tensor last = program->convolved();
  for (size_t i = 1; i < operations.size(); ++i) {
    const Object& operation = *operations[i];
    if (TensorOf(operation.Part(Attribute::kOperationX)).id != last.id || !last.is_virtual)
      CudnnFault("an operation that does not follow the one before");
    Program::Step step{
        operation.Part(Attribute::kOperationPointwise).One<PointwiseMode>(Attribute::kPointwiseMode), {}};
    if (operation.values.contains(Attribute::kOperationB))
      step.operand = TensorOf(operation.Part(Attribute::kOperationB));
    if (step.operand.has_value() != (step.mode == PointwiseMode::kAdd))
      CudnnFault("an operation's number of operands");
    program->steps.push_back(std::move(step));
    last = TensorOf(operation.Part(Attribute::kOperationY));
  }
  if (last.is_virtual) CudnnFault("a graph without a result");
  program->result = last;
  CheckShapes(*program);
  return program;
}

// The configurations of each graph, in their order: one that sums in any order, one that needs too much
// memory, and one that can be used.
constexpr int kChoices = 3, kAnyOrder = 0, kMuchMemory = 1, kUsable = 2;
constexpr int64_t kUsedWorkspace = 4096;

bool IsSupported(const Program& program) {
  const Tensor& factor = program.kind == Kind::kBackwardData ? program.w : program.x;
  const bool sixteen = factor.type != DataType::kFloat;
  return !(sixteen && program.steps.empty() && program.result.type == DataType::kFloat);
}

struct Execution {
  std::shared_ptr<const Program> program;
  std::map<int64_t, void*> memory;  // by tensor
  void* workspace;

  Operation Describe() const {
    Operation operation{.kind = Operation::Kind::kProduct};
    const auto bytes = [](const Tensor& tensor) {
      return static_cast<double>(tensor.size() * tensor.value_bytes());
    };
    for (const Tensor& tensor : program->tensors()) {
      (tensor.id == program->result.id ? operation.bytes_written : operation.bytes_read) += bytes(tensor);
    }
    const Tensor& w = program->w;
    operation.multiplications =
        static_cast<double>(program->y.size()) * static_cast<double>(w.size() / w.dimensions[0]);
    const Tensor& factor = program->kind == Kind::kBackwardData ? w : program->x;
    operation.value_bytes = static_cast<int>(factor.value_bytes());
    return operation;
  }

  void Run() const {
    // The library may write anything there.
    std::memset(workspace, 0x77, kUsedWorkspace);
    const Program& p = *program;
    const Tensor& to = p.convolved();
    std::vector<float> sums(to.size(), 0.0f);
    const auto index = [&to](int64_t a, int64_t b, int64_t c, int64_t d) {
      return ((a * to.dimensions[1] + b) * to.dimensions[2] + c) * to.dimensions[3] + d;
    };
    ForEachProduct([&](const std::array<int64_t, 4>& x, const std::array<int64_t, 4>& w,
                       const std::array<int64_t, 4>& y) {
      const auto read = [this](const Tensor& tensor, const std::array<int64_t, 4>& at) {
        return tensor.Read(memory.at(tensor.id), tensor.At(at[0], at[1], at[2], at[3]));
      };
      if (p.kind == Kind::kForward) {
        sums[index(y[0], y[1], y[2], y[3])] += read(p.x, x) * read(p.w, w);
      } else if (p.kind == Kind::kBackwardData) {
        sums[index(x[0], x[1], x[2], x[3])] += read(p.y, y) * read(p.w, w);
      } else {
        sums[index(w[0], w[1], w[2], w[3])] += read(p.x, x) * read(p.y, y);
      }
    });
    void* const result = memory.at(p.result.id);
    for (int64_t a = 0; a < to.dimensions[0]; ++a) {
      for (int64_t b = 0; b < to.dimensions[1]; ++b) {
        for (int64_t c = 0; c < to.dimensions[2]; ++c) {
          for (int64_t d = 0; d < to.dimensions[3]; ++d)
            p.result.Write(result, p.result.At(a, b, c, d), Finish(sums[index(a, b, c, d)], b));
        }
      }
    }
  }

  template <typename F>
  void ForEachProduct(F f) const {
    const Program& p = *program;
    const auto& [samples, filters, out_height, out_width] = p.y.dimensions;
    const int64_t channels = p.w.dimensions[1], rows = p.w.dimensions[2], columns = p.w.dimensions[3];
    for (int64_t n = 0; n < samples; ++n) {
      for (int64_t k = 0; k < filters; ++k) {
        for (int64_t i = 0; i < out_height * out_width; ++i) {
          for (int64_t j = 0; j < rows * columns; ++j) {
            const int64_t oy = i / out_width, ox = i % out_width, ky = j / columns, kx = j % columns;
            const int64_t y = oy * p.stride - p.padding + ky, x = ox * p.stride - p.padding + kx;
            if (y < 0 || x < 0 || y >= p.x.dimensions[2] || x >= p.x.dimensions[3]) continue;
            for (int64_t c = 0; c < channels; ++c) f({n, c, y, x}, {k, c, ky, kx}, {n, k, oy, ox});
          }
        }
      }
    }
  }

  float Finish(float value, int64_t channel) const {
    for (const Program::Step& step : program->steps) {
      if (step.mode == PointwiseMode::kAdd) {
        value += static_cast<const float*>(memory.at(step.operand->id))[channel * step.operand->strides[1]];
      } else if (step.mode == PointwiseMode::kRelu) {
        value = std::max(value, 0.0f);
      } else if (step.mode != PointwiseMode::kIdentity) {
        CudnnFault("an unknown operation on values");
      }
    }
    return value;
  }
};

Object* As(void* descriptor) { return static_cast<Object*>(descriptor); }

size_t GetVersion() { return 90000; }
const char* GetErrorString(int) { return "an error of the PTX emulator"; }
void GetLastErrorString(char* message, size_t size) {
  if (size > 0) *message = '\0';
}

int Create(void** handle) {
  *handle = new Handle;
  return 0;
}

int Destroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}

int SetStream(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}

int CreateDescriptor(int kind, void** descriptor) {
  *descriptor = new Object{static_cast<Kind>(kind)};
  return 0;
}

int DestroyDescriptor(void* descriptor) {
  delete As(descriptor);
  return 0;
}

size_t BytesOf(Type type) {
  switch (type) {
    case Type::kBoolean:
    case Type::kChar:
      return 1;
    case Type::kHandle:
    case Type::kInt64:
    case Type::kPointer:
    case Type::kDescriptor:
      return 8;
    default:
      return 4;
  }
}

int SetAttribute(void* descriptor, int name, int type, int64_t count, const void* values) {
  Object& object = *As(descriptor);
  if (object.finalized) CudnnFault("an attribute is set of a descriptor that is finalized");
  const char* const bytes = static_cast<const char*>(values);
  if (static_cast<Type>(type) == Type::kDescriptor) {
    for (int64_t i = 0; i < count; ++i) {
      const Object* const part = static_cast<Object* const*>(values)[i];
      if (!part->finalized && part->kind != Kind::kEngineConfig)
        CudnnFault("a part of a descriptor is not finalized");
    }
  }
  object.values[static_cast<Attribute>(name)].assign(bytes, bytes + count * BytesOf(static_cast<Type>(type)));
  return 0;
}

int GetAttribute(void* descriptor, int name, int, int64_t room, int64_t* count, void* values) {
  const Object& object = *As(descriptor);
  switch (static_cast<Attribute>(name)) {
    case Attribute::kHeuristicsResults:
      *count = IsSupported(*object.program) ? std::min<int64_t>(room, kChoices) : 0;
      for (int64_t i = 0; i < *count; ++i) {
        Object* const config = static_cast<Object**>(values)[i];
        config->program = object.program;
        config->choice = static_cast<int>(i);
      }
      return 0;
    case Attribute::kConfigEngine:
      static_cast<Object**>(values)[0]->choice = object.choice;
      *count = 1;
      return 0;
    case Attribute::kEngineNotes:
      *count = object.choice == kAnyOrder ? 1 : 0;
      if (*count > 0) *static_cast<Note*>(values) = Note::kNondeterministic;
      return 0;
    case Attribute::kPlanWorkspace:
      *static_cast<int64_t*>(values) = object.choice == kMuchMemory ? int64_t{1} << 40 : kUsedWorkspace;
      *count = 1;
      return 0;
    default:
      return kBadParameter;
  }
}

int Finalize(void* descriptor) {
  Object& object = *As(descriptor);
  if (object.kind == Kind::kOperationGraph) {
    object.program = ProgramOf(object);
  } else if (object.kind == Kind::kEngineHeuristics) {
    object.program = object.Part(Attribute::kHeuristicsGraph).program;
  } else if (object.kind == Kind::kExecutionPlan) {
    const Object& config = object.Part(Attribute::kPlanConfig);
    object.program = config.program;
    object.choice = config.choice;
    if (object.program == nullptr) return kNotSupported;
  }
  object.finalized = true;
  return 0;
}

int Execute(void* handle, void* plan_descriptor, void* pack_descriptor) {
  Runtime& runtime = TheRuntime();
  const std::lock_guard<std::mutex> lock(runtime.mu);
  const Object &plan = *As(plan_descriptor), &pack = *As(pack_descriptor);
  if (plan.choice != kUsable) CudnnFault("a plan that sums in any order, or has too little memory");
  Execution execution{plan.program, {}, pack.One<void*>(Attribute::kPackWorkspace)};
  if (!runtime.device.Contains(execution.workspace, kUsedWorkspace))
    CudnnFault("the workspace leaves its allocation");
  const auto ids = pack.All<int64_t>(Attribute::kPackIds);
  const auto pointers = pack.All<void*>(Attribute::kPackPointers);
  if (ids.size() != pointers.size()) CudnnFault("numbers and addresses of tensors");
  for (size_t i = 0; i < ids.size(); ++i) execution.memory[ids[i]] = pointers[i];
  for (const Tensor& tensor : plan.program->tensors()) {
    const auto found = execution.memory.find(tensor.id);
    const std::string name = "tensor " + std::to_string(tensor.id);
    if (found == execution.memory.end()) CudnnFault(name + " has no memory");
    if (reinterpret_cast<uintptr_t>(found->second) % tensor.alignment != 0)
      CudnnFault(name + " is not aligned");
    if (!runtime.device.Contains(found->second, tensor.bytes())) CudnnFault(name + " leaves its allocation");
  }
  const bool run = runtime.AddRecord(execution.Describe());
  auto* const stream = static_cast<cudaStream_t>(static_cast<Handle*>(handle)->stream);
  runtime.scheduler.Add(Runtime::StreamOf(stream, "a convolution"), [execution, run] {
    if (run) execution.Run();
  });
  return 0;
}

}  // namespace
}  // namespace catchment::ptx

namespace catchment::cuda::cudnn {

const Library& FindLibrary() {
  static constexpr Api kApi = {
      ptx::GetVersion,   ptx::GetErrorString, ptx::GetLastErrorString, ptx::Create,
      ptx::Destroy,      ptx::SetStream,      ptx::CreateDescriptor,   ptx::DestroyDescriptor,
      ptx::SetAttribute, ptx::GetAttribute,   ptx::Finalize,           ptx::Execute,
  };
  static const auto* const library = new Library{&kApi, "an emulated cuDNN"};
  static const auto* const none = new Library{nullptr, "no emulated cuDNN"};
  const char* const variable = std::getenv("CATCHMENT_PTX_CUDNN");
  return variable != nullptr && std::string(variable) == "1" ? *library : *none;
}

}  // namespace catchment::cuda::cudnn
