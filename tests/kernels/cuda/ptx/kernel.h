// Building blocks of the C++ into which translate.py turns PTX: kernels that execute one thread at a time,
// and the arithmetic of instructions that C++ has no operator for. Only for generated files and the emulator.
#ifndef CATCHMENT_TESTS_KERNELS_CUDA_PTX_KERNEL_H_
#define CATCHMENT_TESTS_KERNELS_CUDA_PTX_KERNEL_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <vector>

namespace catchment::ptx {

struct Pair {
  uint32_t x = 0, y = 0;
};

// A thread of a launched kernel. Launches have one or two dimensions.
struct Thread {
  Pair index, block_size, block, grid_size;
  char* shared = nullptr;  // memory of its block
};

// Returned by a kernel when a thread has ended, instead of the number of the barrier at which it waits.
inline constexpr int kEnded = -1;

struct Kernel {
  const char* name;  // mangled, as the host's code registers it
  // Executes a thread from its start (`resume` 0) or from a barrier that it has returned, to the next barrier
  // or its end.
  int (*execute)(void* registers, const Thread& thread, char* const* parameters, int resume);
  size_t register_bytes;
  size_t shared_bytes;
  int barriers;
  std::vector<size_t> parameter_bytes;
};

// Returns null if no kernel has the name.
const Kernel* FindKernel(const char* name);

// Makes kernels known to FindKernel.
class KernelTable {
 public:
  explicit KernelTable(std::initializer_list<Kernel> kernels);
};

// Counts the operations of kernels while they execute.
struct Activity {
  bool memory_is_recorded = false;
  uint64_t instructions = 0;  // executed, as translate.py weighs them
};
inline Activity activity;

// Add an access to the device's memory to what is recorded (recorder.h).
void AddRead(const char* memory, size_t bytes);
void AddWrite(const char* memory, size_t bytes);
inline void RecordRead(const char* memory, size_t bytes) {
  if (activity.memory_is_recorded) AddRead(memory, bytes);
}
inline void RecordWrite(const char* memory, size_t bytes) {
  if (activity.memory_is_recorded) AddWrite(memory, bytes);
}

template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T, typename Value>
void Store(char* to, Value value) {
  const T stored = static_cast<T>(value);
  std::memcpy(to, &stored, sizeof stored);
}

inline float Float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// The sum of two floats is exact in a double, or rounds to the same side of zero.
inline float AddTowardsZero(float a, float b) {
  const double sum = static_cast<double>(a) + b;
  const float rounded = static_cast<float>(sum);
  return std::fabs(static_cast<double>(rounded)) > std::fabs(sum) ? std::nextafterf(rounded, 0) : rounded;
}

inline float FmaDown(float a, float b, float c) {
  const double sum = static_cast<double>(a) * b + c;
  const float rounded = static_cast<float>(sum);
  return static_cast<double>(rounded) > sum
             ? std::nextafterf(rounded, -std::numeric_limits<float>::infinity())
             : rounded;
}

inline float Saturate(float value) { return std::isnan(value) ? 0.0f : std::clamp(value, 0.0f, 1.0f); }

// To the nearest, ties to even.
inline uint16_t Bfloat16Bits(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = Bits(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline uint16_t HalfBits(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }
inline float FromHalfBits(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }

template <typename T>
T ShiftLeft(T value, uint32_t bits) {
  return bits >= 8 * sizeof(T) ? 0 : static_cast<T>(static_cast<std::make_unsigned_t<T>>(value) << bits);
}

template <typename T>
T ShiftRight(T value, uint32_t bits) {
  return value >> std::min<uint32_t>(bits, 8 * sizeof(T) - 1) >> (bits >= 8 * sizeof(T) ? 1 : 0);
}

}  // namespace catchment::ptx

#endif  // CATCHMENT_TESTS_KERNELS_CUDA_PTX_KERNEL_H_
