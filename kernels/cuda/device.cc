#include "kernels/cuda/device.h"

#include <cxxabi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace catchment::cuda {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(std::string(what) + ": CUDA error " + std::to_string(static_cast<int>(error)) + ", " +
              cudaGetErrorString(error));
}

constexpr char kWorkFailed[] = "the device's work failed (CATCHMENT_CUDA_SYNC=1 names the kernel)";

// Returns the name of a type in C++, or other text as it is.
std::string Demangled(const char* name) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string text = status == 0 ? "the kernel of " + std::string(demangled) : name;
  std::free(demangled);
  return text;
}

// The number of events for copies to the host, which are waited for by number: a step has fewer copies in
// progress.
constexpr int kEvents = 1024;

// The host polls a copy for this long before it blocks, because a blocked thread wakes up tens of
// microseconds late.
constexpr std::chrono::microseconds kPolling(100);

struct CopyEvents {
  cudaEvent_t events[kEvents];
  uint64_t next = 0;
};

struct AllStreams : Device::Streams {
  CopyEvents copies;
};

struct Clear {
  uint32_t* counters;
  __device__ void operator()(int i) const { counters[i] = 0; }
};

}  // namespace

const int64_t Device::kMaxPatchValues = int64_t{1} << 27;
const size_t Device::kSpareBytes = size_t{512} << 20;

Device::Device(int index, Precision precision) : index_(index), precision_(precision) {
  Enter();
  auto* streams = new AllStreams;
  streams_ = streams;
  for (cudaStream_t* stream : {&streams->compute, &streams->in, &streams->out}) {
    Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "a stream");
  }
  for (cudaEvent_t* event : {&streams->copied_in, &streams->computed}) {
    Check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event");
  }
  for (cudaEvent_t& event : streams->copies.events) {
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "an event");
  }
  workspace_ = Allocate(kWorkspace);
  CheckMemory(1);
  ClearSums();
}

// The last block of each sum sets its counter back.
void Device::ClearSums() {
  ForEach(kMaxSumBlocks,
          Clear{reinterpret_cast<uint32_t*>(static_cast<char*>(workspace_) + kWorkspaceBytes)});
}

Device::~Device() {
  cudaSetDevice(index_);
  cudaDeviceSynchronize();
  convolutions_.reset();
  auto* streams = static_cast<AllStreams*>(streams_);
  for (cudaEvent_t event : streams->copies.events) cudaEventDestroy(event);
  for (cudaEvent_t event : {streams->copied_in, streams->computed}) cudaEventDestroy(event);
  for (cudaStream_t stream : {streams->compute, streams->in, streams->out}) cudaStreamDestroy(stream);
  Release(scratch_);
  Release(workspace_);
  delete streams;
}

void Device::Enter() { Check(cudaSetDevice(index_), "the device cannot be used"); }

std::string Device::Describe() const {
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, index_), "the device's properties");
  char text[400];
  std::snprintf(text, sizeof text, "cuda:%d: %s, compute capability %d.%d, %s", index_, properties.name,
                properties.major, properties.minor, NameOf(precision_));
  return text + DescribeConvolutions();
}

void* Device::TryAllocate(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  Check(error, "device memory");
  return memory;
}

Device::Memory Device::memory() const {
  Memory memory;
  Check(cudaMemGetInfo(&memory.free, &memory.total), "the device's memory");
  return memory;
}

void* Device::AllocatePinned(size_t bytes) {
  void* memory = nullptr;
  Check(cudaMallocHost(&memory, bytes == 0 ? 1 : bytes), "pinned memory");
  return memory;
}

// The caller's thread may be one that has not entered.
bool Device::TryRegister(void* memory, size_t bytes) {
  if (cudaSetDevice(index_) == cudaSuccess &&
      cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) {
    return true;
  }
  cudaGetLastError();
  return false;
}

void Device::Unregister(void* memory) noexcept {
  cudaSetDevice(index_);
  cudaDeviceSynchronize();
  cudaHostUnregister(memory);
}

void Device::Release(void* memory) noexcept { cudaFree(memory); }
void Device::FreePinned(void* memory) noexcept { cudaFreeHost(memory); }

void Device::CopyIn(void* device, const void* pinned, size_t bytes) {
  ForEachRun(pinned, bytes, [&](size_t at, size_t part) {
    Check(cudaMemcpyAsync(static_cast<char*>(device) + at, static_cast<const char*>(pinned) + at, part,
                          cudaMemcpyHostToDevice, streams_->in),
          "a copy to the device");
  });
  Check(cudaEventRecord(streams_->copied_in, streams_->in), "an event");
  Check(cudaStreamWaitEvent(streams_->compute, streams_->copied_in), "an event");
}

uint64_t Device::CopyOut(void* pinned, const void* device, size_t bytes) {
  CopyEvents& copies = static_cast<AllStreams*>(streams_)->copies;
  Check(cudaEventRecord(streams_->computed, streams_->compute), "an event");
  Check(cudaStreamWaitEvent(streams_->out, streams_->computed), "an event");
  ForEachRun(pinned, bytes, [&](size_t at, size_t part) {
    Check(cudaMemcpyAsync(static_cast<char*>(pinned) + at, static_cast<const char*>(device) + at, part,
                          cudaMemcpyDeviceToHost, streams_->out),
          "a copy from the device");
  });
  Check(cudaEventRecord(copies.events[copies.next % kEvents], streams_->out), "an event");
  return copies.next++;
}

// If the event has been used for a later copy since, it includes this one: the stream executes them in order.
void Device::Await(uint64_t copy_out) {
  const cudaEvent_t event = static_cast<AllStreams*>(streams_)->copies.events[copy_out % kEvents];
  const auto end = std::chrono::steady_clock::now() + kPolling;
  cudaError_t error = cudaEventQuery(event);
  while (error == cudaErrorNotReady && std::chrono::steady_clock::now() < end) error = cudaEventQuery(event);
  if (error == cudaErrorNotReady) error = cudaEventSynchronize(event);
  Check(error, kWorkFailed);
}

void Device::Wait() { Check(cudaDeviceSynchronize(), kWorkFailed); }

void Device::Launched(const char* name) {
  cudaError_t error = cudaGetLastError();
  const char* const what = error == cudaSuccess ? " failed" : " could not be started";
  if (error == cudaSuccess && waits_for_all_work_) error = cudaStreamSynchronize(streams_->compute);
  if (error != cudaSuccess) Check(error, (Demangled(name) + what).c_str());
}

}  // namespace catchment::cuda
