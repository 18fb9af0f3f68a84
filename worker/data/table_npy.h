// Reads NumPy's array files: features in one, labels or targets in another.
//
// Layout: "\x93NUMPY", the format's version (1.0: 2 bytes of header length, 2.0: 4), a Python dictionary
// {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), } and the values, the last dimension
// fastest.
//
// Source: NumPy Enhancement Proposal 1 and numpy.lib.format.
#ifndef CATCHMENT_WORKER_DATA_TABLE_NPY_H_
#define CATCHMENT_WORKER_DATA_TABLE_NPY_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/table_rows.h"

namespace catchment {

// `path` is the features' file, N x any dimensions whose product is the shape's size; the labels' is the one
// whose name has spec.labels instead of spec.features: N, or N x one-hot columns or targets. Bytes (u1) stay
// bytes. Errors: MappedFile's; InvalidArgument for a name without spec.features, for big-endian or other
// types, Fortran order, version 3, and dimensions or values that do not fit; DataLoss for a file that is cut
// short or goes on after its values.
absl::StatusOr<TableRows> ReadNpy(const std::string& path, const TableSpec& spec);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_NPY_H_
