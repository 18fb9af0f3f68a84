// Makes IDX files for tests, good and bad ones.
#ifndef CATCHMENT_TESTS_WORKER_DATA_IDX_FILES_H_
#define CATCHMENT_TESTS_WORKER_DATA_IDX_FILES_H_

#include <string>
#include <vector>

namespace catchment {

// An IDX file of unsigned bytes: header and values.
std::string IdxBytes(const std::vector<uint32_t>& dimensions, const std::string& values);

std::string Gzipped(const std::string& bytes);

// A folder of the running test's own, which is made, under TEST_TMPDIR. Ends without '/'.
std::string TestDirectory();

// Writes a file and returns its path.
std::string WriteFile(const std::string& directory, const std::string& name, const std::string& bytes);

// All bytes of a file, unpacked where it is gzipped.
std::string ReadUnpacked(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_DATA_IDX_FILES_H_
