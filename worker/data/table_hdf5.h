// Reads HDF5 files: a data set of features and one of labels or targets, as MPI-Learn's examples write them.
//
// Source: the HDF5 1.10 reference manual.
#ifndef CATCHMENT_WORKER_DATA_TABLE_HDF5_H_
#define CATCHMENT_WORKER_DATA_TABLE_HDF5_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/table_rows.h"

namespace catchment {

// Data sets spec.features, N x any dimensions whose product is the shape's size, and spec.labels, N, or N x
// one-hot columns or targets; of integers or floats of any width and byte order, contiguous or chunked,
// compressed by what the HDF5 library here knows (gzip, szip). Features of bytes without sign stay bytes.
// Threads: one thread in the process at a time; Debian's library has no locks.
// Errors: NotFound for a missing file or data set; DataLoss for what HDF5 cannot read, with its reason;
// InvalidArgument for other types, and dimensions or values that do not fit.
absl::StatusOr<TableRows> ReadHdf5(const std::string& path, const TableSpec& spec);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_HDF5_H_
