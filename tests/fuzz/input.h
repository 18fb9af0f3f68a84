// The input of a fuzz target: numbers and texts from its bytes, and files for parsers that read files.
#ifndef CATCHMENT_TESTS_FUZZ_INPUT_H_
#define CATCHMENT_TESTS_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

// Tests one input and returns 0. Aborts where the code under test does what it must not do.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace catchment {

// Takes values from the front of the input; zeros and empty texts once it is used up.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }
  uint8_t Byte();
  // Returns 0 .. below-1 from one byte, with `below` from 1 to 256.
  uint32_t Below(uint32_t below) { return Byte() % below; }
  // Returns the number in the next `bytes` bytes, at most 8, little-endian.
  uint64_t Number(int bytes);
  // A length in two bytes, and as many bytes after it as there are.
  absl::string_view Text();
  absl::string_view Rest();

 private:
  absl::string_view left_;
};

// Writes a file in a directory of this process and returns its path. `name` may have folders in it. The
// directory is in memory where the machine has /dev/shm, and is deleted when the process ends in order.
std::string WriteFuzzFile(const std::string& name, absl::string_view content);

// Returns that directory.
const std::string& FuzzDirectory();

}  // namespace catchment

#endif  // CATCHMENT_TESTS_FUZZ_INPUT_H_
