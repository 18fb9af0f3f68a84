// The functions of the CUDA runtime that the plugin calls, and those that nvcc's host code calls for it.
#include "tests/kernels/cuda/ptx/runtime.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/ptx/kernel.h"

namespace catchment::ptx {
namespace {

constexpr size_t kAlignment = 256;
constexpr uintptr_t kPageBytes = 4096;
// Allocations of at most this size are filled; larger ones are workspace.
constexpr size_t kFilledBytes = size_t{1} << 20;
constexpr size_t kMemoryBytes = size_t{64} << 30;
constexpr unsigned kMaxBlocksOfY = 65535;
constexpr unsigned kMaxThreads = 1024;

// ------------------------------------------------------------------------ kernels

std::vector<Kernel>& Kernels() {
  static auto* const kernels = new std::vector<Kernel>;
  return *kernels;
}

// The names of kernels, by the address of their host functions.
std::unordered_map<const void*, std::string>& HostFunctions() {
  static auto* const functions = new std::unordered_map<const void*, std::string>;
  return *functions;
}

// A launch whose arguments are copied, as the runtime copies them.
struct Launch {
  const Kernel* kernel;
  dim3 grid, block;
  std::vector<std::vector<uint64_t>> arguments;

  // Returns the instructions of the thread that executes the most.
  uint64_t Run() const;
  uint64_t RunBlock(uint32_t x, uint32_t y, char* const* parameters, std::vector<char>* shared,
                    std::vector<uint64_t>* registers) const;
};

uint64_t Launch::RunBlock(uint32_t x, uint32_t y, char* const* parameters, std::vector<char>* shared,
                          std::vector<uint64_t>* registers) const {
  const uint32_t threads = block.x * block.y;
  // Without barriers a thread ends before the next one begins, and all can have the same registers.
  const size_t words = kernel->barriers == 0 ? 0 : kernel->register_bytes / sizeof(uint64_t) + 1;
  std::vector<int> at(threads, 0);
  std::vector<uint64_t> instructions(threads, 0);
  std::memset(shared->data(), 0xff, shared->size());
  for (bool waiting = true; waiting;) {
    const int barrier = at.front();
    for (uint32_t t = 0; t < threads; ++t) {
      const Thread thread{
          {t % block.x, t / block.x}, {block.x, block.y}, {x, y}, {grid.x, grid.y}, shared->data()};
      const uint64_t before = activity.instructions;
      at[t] = kernel->execute(registers->data() + t * words, thread, parameters, at[t]);
      instructions[t] += activity.instructions - before;
    }
    waiting = at.front() != kEnded;
    for (const int other : at) {
      if (other != at.front()) {
        Fault(std::string("kernel ") + kernel->name +
              ": a barrier is not reached by all threads of its block, after barrier " +
              std::to_string(barrier));
      }
    }
  }
  return *std::max_element(instructions.begin(), instructions.end());
}

uint64_t Launch::Run() const {
  std::vector<char*> parameters;
  for (const std::vector<uint64_t>& argument : arguments) {
    parameters.push_back(reinterpret_cast<char*>(const_cast<uint64_t*>(argument.data())));
  }
  std::vector<char> shared(kernel->shared_bytes);
  const size_t count = kernel->barriers == 0 ? 1 : block.x * block.y;
  std::vector<uint64_t> registers(count * (kernel->register_bytes / sizeof(uint64_t) + 1));
  uint64_t longest = 0;
  for (uint32_t y = 0; y < grid.y; ++y) {
    for (uint32_t x = 0; x < grid.x; ++x)
      longest = std::max(longest, RunBlock(x, y, parameters.data(), &shared, &registers));
  }
  return longest;
}

// Runs a launch and sets what `operation` says of its execution.
void RunRecorded(const Launch& launch, Operation* operation) {
  const uint64_t before = activity.instructions;
  activity.memory_is_recorded = true;
  operation->longest_thread = static_cast<double>(launch.Run());
  activity.memory_is_recorded = false;
  operation->instructions = static_cast<double>(activity.instructions - before);
  TakeAccesses(operation);
}

bool IsLegal(const dim3& grid, const dim3& block) {
  return grid.x > 0 && grid.y > 0 && grid.z == 1 && grid.y <= kMaxBlocksOfY && block.x > 0 && block.y > 0 &&
         block.z == 1 && block.x * block.y <= kMaxThreads;
}

// Returns whether the kernel is to fail as on an illegal access: $CATCHMENT_PTX_FAULT is a part of its name.
bool IsFaulty(const char* name) {
  const char* const faulty = std::getenv("CATCHMENT_PTX_FAULT");
  return faulty != nullptr && std::strstr(name, faulty) != nullptr;
}

std::string ToString(const dim3& size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

// The arguments of <<<...>>> for the next launch.
struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local Configuration configuration;

}  // namespace

KernelTable::KernelTable(std::initializer_list<Kernel> kernels) {
  Kernels().insert(Kernels().end(), kernels.begin(), kernels.end());
}

const Kernel* FindKernel(const char* name) {
  for (const Kernel& kernel : Kernels()) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

void* Allocations::Allocate(size_t bytes) {
  void* const memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) Fault("out of memory");
  std::memset(memory, 0xff, std::min(bytes, kFilledBytes));
  bytes_.emplace(static_cast<const char*>(memory), bytes);
  return memory;
}

void Allocations::Free(void* memory) {
  if (memory == nullptr) return;
  if (bytes_.erase(static_cast<const char*>(memory)) == 0) Fault("memory is freed that was not allocated");
  std::free(memory);
}

bool Allocations::Contains(const void* memory, size_t bytes) const {
  const char* const begin = static_cast<const char*>(memory);
  auto after = bytes_.upper_bound(begin);
  if (after == bytes_.begin()) return false;
  --after;
  return begin + bytes <= after->first + after->second;
}

bool Allocations::Add(void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
  for (const auto& [other, other_bytes] : bytes_) {
    const auto first = reinterpret_cast<uintptr_t>(other);
    if (begin / kPageBytes <= (first + other_bytes - 1) / kPageBytes &&
        first / kPageBytes <= (end - 1) / kPageBytes)
      return false;
  }
  bytes_.emplace(static_cast<const char*>(memory), bytes);
  return true;
}

void Allocations::Remove(void* memory) {
  if (bytes_.erase(static_cast<const char*>(memory)) == 0)
    Fault("memory is unregistered that was not registered");
}

Stream* Runtime::StreamOf(cudaStream_t stream, const std::string& user) {
  if (stream == nullptr) Fault(user + ": uses the default stream, which waits for all others");
  return reinterpret_cast<Stream*>(stream);
}

bool Runtime::AddRecord(const Operation& operation) {
  if (recording == nullptr) return true;
  recording->operations.push_back(operation);
  return false;
}

Runtime& TheRuntime() {
  static auto* const runtime = new Runtime;
  return *runtime;
}

}  // namespace catchment::ptx

using catchment::ptx::Event;
using catchment::ptx::Fault;
using catchment::ptx::Runtime;
using catchment::ptx::Stream;
using catchment::ptx::TheRuntime;
using Lock = std::lock_guard<std::mutex>;

namespace {

// Records that the host waits for the event, once each time that the event is recorded.
void RecordWait(Event* event) {
  if (event->awaited == event->recorded) return;
  event->awaited = event->recorded;
  TheRuntime().AddRecord({.kind = catchment::ptx::Operation::Kind::kWait,
                          .polled = std::exchange(event->polled, false),
                          .awaited = event->operations});
}

}  // namespace

extern "C" {

// ------------------------------------------------------------------------ the device

cudaError_t cudaSetDevice(int) { return cudaSuccess; }

// The driver supports $CATCHMENT_PTX_DRIVER, 12040 for CUDA 12.4, or this CUDA; with 0 there is no driver.
cudaError_t cudaDriverGetVersion(int* version) {
  const char* const variable = std::getenv("CATCHMENT_PTX_DRIVER");
  *version = variable != nullptr ? std::atoi(variable) : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  return driver < CUDART_VERSION ? cudaErrorInsufficientDriver : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "PTX on the processor");
  properties->major = 9;
  properties->totalGlobalMem = catchment::ptx::kMemoryBytes;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  Lock lock(TheRuntime().mu);
  if (TheRuntime().fault != cudaSuccess) return TheRuntime().fault;
  return std::exchange(TheRuntime().last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t) { return "an error of the PTX emulator"; }

cudaError_t cudaDeviceSynchronize() {
  Lock lock(TheRuntime().mu);
  TheRuntime().scheduler.RunAll();
  return TheRuntime().fault;
}

// ------------------------------------------------------------------------ memory

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  Lock lock(TheRuntime().mu);
  *memory = TheRuntime().device.Allocate(bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  Lock lock(TheRuntime().mu);
  TheRuntime().scheduler.RunAll();
  TheRuntime().device.Free(memory);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  Lock lock(TheRuntime().mu);
  *memory = TheRuntime().pinned.Allocate(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  Lock lock(TheRuntime().mu);
  TheRuntime().scheduler.RunAll();
  TheRuntime().pinned.Free(memory);
  return cudaSuccess;
}

// Pages can be registered once.
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  Lock lock(TheRuntime().mu);
  if (TheRuntime().registered.Add(memory, bytes)) return cudaSuccess;
  return TheRuntime().last_error = cudaErrorHostMemoryAlreadyRegistered;
}

cudaError_t cudaHostUnregister(void* memory) {
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mu);
  for (const auto& [begin, bytes] : runtime.host_copies) {
    if (runtime.registered.Contains(begin, bytes)) Fault("memory is unregistered while a copy is under way");
  }
  runtime.registered.Remove(memory);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = catchment::ptx::kMemoryBytes;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mu);
  const void* const host = kind == cudaMemcpyHostToDevice   ? from
                           : kind == cudaMemcpyDeviceToHost ? to
                                                            : nullptr;
  const bool staged = runtime.pinned.Contains(host, bytes);
  const auto is_legal = [&](const void* memory) {
    if (memory != host) return runtime.device.Contains(memory, bytes);
    return staged || runtime.registered.Contains(memory, bytes);
  };
  if (!is_legal(from) || !is_legal(to)) {
    Fault("a copy of " + std::to_string(bytes) + " bytes leaves its allocations");
  }
  using Kind = catchment::ptx::Operation::Kind;
  const Kind recorded = kind == cudaMemcpyHostToDevice   ? Kind::kCopyIn
                        : kind == cudaMemcpyDeviceToHost ? Kind::kCopyOut
                                                         : Kind::kCopyOnDevice;
  const bool run =
      runtime.AddRecord({.kind = recorded, .bytes_read = static_cast<double>(bytes), .staged = staged});
  const auto copy = runtime.host_copies.emplace(static_cast<const char*>(host), bytes);
  runtime.scheduler.Add(Runtime::StreamOf(stream, "a copy"), [=] {
    if (run) std::memcpy(to, from, bytes);
    TheRuntime().host_copies.erase(copy);
  });
  return cudaSuccess;
}

// ------------------------------------------------------------------------ streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Lock lock(TheRuntime().mu);
  *stream = reinterpret_cast<cudaStream_t>(TheRuntime().scheduler.MakeStream());
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Lock lock(TheRuntime().mu);
  const Stream* const stream = Runtime::StreamOf(handle, "cudaStreamSynchronize");
  TheRuntime().scheduler.RunUntil([stream] { return stream->empty(); });
  return TheRuntime().fault;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(TheRuntime().mu);
  TheRuntime().scheduler.Destroy(Runtime::StreamOf(stream, "cudaStreamDestroy"));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mu);
  auto* const recorded = reinterpret_cast<Event*>(event);
  if (runtime.recording != nullptr) recorded->operations = runtime.recording->operations.size();
  runtime.scheduler.Record(recorded, Runtime::StreamOf(stream, "an event"));
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Lock lock(TheRuntime().mu);
  TheRuntime().scheduler.Wait(Runtime::StreamOf(stream, "a wait"), reinterpret_cast<Event*>(event));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Lock lock(TheRuntime().mu);
  auto* const event = reinterpret_cast<Event*>(handle);
  const uint64_t times = event->recorded;
  RecordWait(event);
  TheRuntime().scheduler.RunUntil([event, times] { return event->reached >= times; });
  return TheRuntime().fault;
}

// Streams do not move on meanwhile, so that a random order does not depend on how often the host asks.
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Lock lock(TheRuntime().mu);
  auto* const event = reinterpret_cast<Event*>(handle);
  event->polled = true;
  if (event->reached < event->recorded) return cudaErrorNotReady;
  RecordWait(event);
  return TheRuntime().fault;
}

// ------------------------------------------------------------------------ launches, as by nvcc's host code

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  catchment::ptx::HostFunctions()[host_function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  catchment::ptx::configuration = {grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  const catchment::ptx::Configuration& configuration = catchment::ptx::configuration;
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block, void** arguments, size_t,
                               cudaStream_t stream) {
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mu);
  const auto registered = catchment::ptx::HostFunctions().find(reinterpret_cast<const void*>(handle));
  if (registered == catchment::ptx::HostFunctions().end())
    Fault("a kernel is launched that was not registered");
  const std::string& name = registered->second;
  auto launch = std::make_shared<catchment::ptx::Launch>();
  launch->kernel = catchment::ptx::FindKernel(name.c_str());
  if (launch->kernel == nullptr) Fault("kernel " + name + ": was not translated");
  if (!catchment::ptx::IsLegal(grid, block)) {
    Fault("kernel " + name + ": cannot be launched with " + catchment::ptx::ToString(grid) + " blocks of " +
          catchment::ptx::ToString(block) + " threads");
  }
  launch->grid = grid;
  launch->block = block;
  for (size_t i = 0; i < launch->kernel->parameter_bytes.size(); ++i) {
    const size_t bytes = launch->kernel->parameter_bytes[i];
    launch->arguments.emplace_back(bytes / sizeof(uint64_t) + 1);
    std::memcpy(launch->arguments.back().data(), arguments[i], bytes);
  }
  catchment::ptx::Recording* const recording = runtime.recording;
  const double threads = static_cast<double>(grid.x) * grid.y * block.x * block.y;
  const bool run = runtime.AddRecord({.name = name, .threads = threads});
  runtime.scheduler.Add(Runtime::StreamOf(stream, "kernel " + name), [launch, recording, run] {
    if (catchment::ptx::IsFaulty(launch->kernel->name)) {
      TheRuntime().fault = cudaErrorIllegalAddress;
    } else if (run) {
      launch->Run();
    } else if (recording->execute) {
      RunRecorded(*launch, &recording->operations.back());
    }
  });
  return cudaSuccess;
}

}  // extern "C"
