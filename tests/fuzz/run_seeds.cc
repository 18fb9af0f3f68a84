// Runs a fuzz target over the files of the directory that is its argument, as regression tests: each file,
// and each without its last bytes.
#include <glog/logging.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/fuzz/input.h"

namespace {

// A file is cut at no more than this many places.
constexpr size_t kMaxCuts = 64;

void RunOne(const std::string& bytes, size_t size) {
  // A copy of its own, so that a sanitizer sees what is read behind its end.
  const std::string cut = bytes.substr(0, size);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(cut.data()), cut.size());
}

void RunFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  CHECK(file.good()) << path;
  const std::string bytes = content.str();
  // Printed first, so that the file of a crash is named.
  std::printf("%s, %zu bytes\n", path.c_str(), bytes.size());
  std::fflush(stdout);
  RunOne(bytes, bytes.size());
  const size_t cuts = std::min(bytes.size(), kMaxCuts);
  for (size_t i = 0; i < cuts; ++i) RunOne(bytes, i * bytes.size() / cuts);
}

}  // namespace

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  CHECK_EQ(argc, 2) << "usage: " << argv[0] << " DIRECTORY";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    RunFile(entry.path());
    ++files;
  }
  CHECK_GT(files, 0) << "no seed in " << argv[1];
  std::printf("%d seeds\n", files);
  return 0;
}
