#include "tests/fuzz/input.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace catchment {
namespace {

struct TemporaryDirectory {
  TemporaryDirectory() {
    path = std::filesystem::is_directory("/dev/shm") ? "/dev/shm/fuzz_XXXXXX" : "/tmp/fuzz_XXXXXX";
    CHECK(mkdtemp(path.data()) != nullptr) << path;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

}  // namespace

uint8_t FuzzInput::Byte() { return static_cast<uint8_t>(Number(1)); }

uint64_t FuzzInput::Number(int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes && !left_.empty(); ++i) {
    number |= uint64_t{static_cast<uint8_t>(left_.front())} << (8 * i);
    left_.remove_prefix(1);
  }
  return number;
}

absl::string_view FuzzInput::Text() {
  const size_t wanted = Number(2);
  const size_t size = std::min(wanted, left_.size());
  const absl::string_view text = left_.substr(0, size);
  left_.remove_prefix(size);
  return text;
}

absl::string_view FuzzInput::Rest() {
  const absl::string_view text = left_;
  left_ = {};
  return text;
}

const std::string& FuzzDirectory() {
  static const TemporaryDirectory directory;
  return directory.path;
}

std::string WriteFuzzFile(const std::string& name, absl::string_view content) {
  const std::string path = FuzzDirectory() + "/" + name;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  CHECK(file.good()) << path;
  return path;
}

}  // namespace catchment
