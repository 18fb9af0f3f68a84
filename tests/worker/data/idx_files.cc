#include "tests/worker/data/idx_files.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "glog/logging.h"

namespace catchment {

std::string IdxBytes(const std::vector<uint32_t>& dimensions, const std::string& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(dimensions.size())};
  for (uint32_t dimension : dimensions) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(dimension >> shift));
  }
  return bytes + values;
}

std::string Gzipped(const std::string& bytes) {
  constexpr int kGzipWindow = 15 + 16;
  z_stream stream = {};
  CHECK_EQ(deflateInit2(&stream, 1, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  CHECK_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string TestDirectory() {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path =
      testing::TempDir() + "/" + std::string(test->test_suite_name()) + "." + std::string(test->name());
  std::filesystem::create_directories(path);
  return path;
}

std::string WriteFile(const std::string& directory, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(directory);
  const std::string path = directory + "/" + name;
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  CHECK(file.flush()) << path;
  return path;
}

std::string ReadUnpacked(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  CHECK(file != nullptr) << path;
  std::string bytes, chunk(1 << 20, '\0');
  for (int got; (got = gzread(file, chunk.data(), chunk.size())) > 0;) bytes.append(chunk, 0, got);
  gzclose(file);
  return bytes;
}

}  // namespace catchment
