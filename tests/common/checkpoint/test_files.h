// Files for tests: bytes in, bytes out, a folder of each test's own, a limit of sizes.
#ifndef CATCHMENT_TESTS_COMMON_CHECKPOINT_TEST_FILES_H_
#define CATCHMENT_TESTS_COMMON_CHECKPOINT_TEST_FILES_H_

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace catchment {

// Empty at the test's start.
inline std::string FreshDirectory() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = ::testing::TempDir() + "/" + info->test_suite_name() + "." + info->name();
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

inline std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void SetFileBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// No file of this process may grow beyond `bytes` while one of these lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_CHECKPOINT_TEST_FILES_H_
