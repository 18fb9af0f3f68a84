// The process that reads an HDF5 file, and the shared memory through which its parent gets the values.
//
// libhdf5 1.10 has memory errors for damaged files, some of which end the process. So ReadHdf5 (hdf5.cc)
// starts the program that it runs in once more; the child only reads the file, and writes the values to
// memory that both have. What the memory contains was written by a process that a damaged file may have led
// astray: the parent checks it.
#ifndef CATCHMENT_WORKER_DATA_TABLE_HDF5_VALUES_H_
#define CATCHMENT_WORKER_DATA_TABLE_HDF5_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table/rows.h"

namespace catchment {

struct Hdf5Request {
  std::string path;
  std::string features;  // data sets
  std::string labels;
  std::vector<int64_t> shape;  // data.table.shape
  bool limits_processor_time = false;

  int64_t row_size() const;  // the number of features of a row
};

// The kinds of features in the memory.
enum class Hdf5Values : uint32_t { kFloats, kBytes, kDoubles };

// Returns the bytes of a value.
constexpr int64_t SizeOf(Hdf5Values values) {
  return values == Hdf5Values::kBytes ? 1 : values == Hdf5Values::kFloats ? 4 : 8;
}

// The beginning of the memory.
struct Hdf5Header {
  static constexpr uint32_t kComplete = 0x48444635;

  uint32_t complete;  // kComplete when everything else is there
  int32_t code;       // absl::StatusCode; if it is not OK, the rest but `message` means nothing
  int64_t rows;
  int64_t label_columns;
  Hdf5Values values;
  char message[3072];  // ends with a zero
};

// The features begin here, rows x row_size: unsigned bytes, floats where those hold all values of the file's
// type, and doubles for others. The labels are behind them, rows x label_columns doubles.
constexpr int64_t kHdf5ValuesBegin = 4096;
static_assert(sizeof(Hdf5Header) <= kHdf5ValuesBegin);

// Returns the offset of the labels after features of `bytes` bytes.
constexpr int64_t Hdf5LabelsBegin(int64_t bytes) { return (kHdf5ValuesBegin + bytes + 63) / 64 * 64; }

// The descriptor of the memory in the child.
constexpr int kHdf5Memory = 3;

// Returns the arguments with which this program (/proc/self/exe) reads a file instead of running its main
// function.
std::vector<std::string> Hdf5Arguments(const Hdf5Request& request);

// Reads a file in this process, and writes a header and the values to `memory`, the descriptor of a file of
// zeros with kHdf5ValuesBegin bytes, which grows as needed. Errors are in the header.
void WriteHdf5Values(const Hdf5Request& request, int memory);

// Returns the rows in the memory that WriteHdf5Values has written, which stays mapped as long as they are
// used. Nothing can change it afterwards. Errors: that of the header; DataLoss if the memory does not contain
// what its header says; those of the checks of all formats (rows.h).
absl::StatusOr<TableRows> TakeHdf5Rows(const Hdf5Request& request, const TableSpec& spec, int memory);

// Does what ReadHdf5 does without a child, for the fuzzer, which sees in this process which code has run.
absl::StatusOr<TableRows> ReadHdf5InThisProcess(const std::string& path, const TableSpec& spec);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_HDF5_VALUES_H_
