// HDF5 files. What libhdf5, which is not instrumented, does wrong ends only the process that reads the file.
// A file that it survives is read again in this process, where the fuzzer sees which of Catchment's code has
// run.
#include "absl/strings/match.h"
#include "tests/fuzz/table.h"
#include "worker/data/table/hdf5_values.h"

namespace catchment {
namespace {

absl::StatusOr<TableRows> Read(const std::string& path, const TableSpec& spec) {
  absl::StatusOr<TableRows> rows = ReadHdf5(path, spec);
  if (absl::StrContains(rows.status().message(), "libhdf5 failed")) return rows;
  return ReadHdf5InThisProcess(path, spec);
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::TestTable(catchment::FuzzInput(data, size), ".h5", /*two_files=*/false, catchment::Read);
  return 0;
}
