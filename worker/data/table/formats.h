// The file formats of tables: each is read by one function, in the source file of its name. To add a format:
// a function here, its source file, and its ending in files.cc.
//
// Errors: they name the file, and the row if a row is wrong. Those of MappedFile, and InvalidArgument for
// contents that do not fit `spec`; each format adds its own.
#ifndef CATCHMENT_WORKER_DATA_TABLE_FORMATS_H_
#define CATCHMENT_WORKER_DATA_TABLE_FORMATS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/table/rows.h"

namespace catchment {

// Reads comma-separated values (csv.cc): a row on each line, all of them numbers, with its label or targets
// in the last or the first columns. Source: RFC 4180, without its quoted fields.
//
// A first line in which no field is a number contains names and is skipped; so is 0, 1, ..., n-1 with n >= 3,
// which pandas writes for a frame that was made of an array (one warning says so). Lines end with \n or \r\n;
// spaces around a number are ignored; there are no quotes. Errors count rows and columns from 1, including a
// line of names.
absl::StatusOr<TableRows> ReadCsv(const std::string& path, const TableSpec& spec);

// Reads NumPy's array files (npy.cc): features in one file, labels or targets in another. Source: NumPy
// Enhancement Proposal 1 and numpy.lib.format.
//
// Layout: "\x93NUMPY", the format's version (1.0: 2 bytes of header length, 2.0: 4), a Python dictionary
// {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), } and the values, the last dimension
// fastest.
//
// `path` is the file of features, N x the shape, or N x all of its values (DescribeRowMismatch). The file of
// labels has spec.labels in its name instead of spec.features: N, or N x one-hot columns or targets. Bytes
// (u1) stay bytes.
// Errors: InvalidArgument for a name without spec.features, for big-endian or other types, Fortran order, or
// version 3; DataLoss for a file that is truncated or has data after its values.
absl::StatusOr<TableRows> ReadNpy(const std::string& path, const TableSpec& spec);

// Reads HDF5 files (hdf5.cc): a data set of features and one of labels or targets, as MPI-Learn's examples
// write them.
// Source: the HDF5 1.10 reference manual.
//
// The data sets are spec.features, N x the shape or N x all of its values (DescribeRowMismatch), and
// spec.labels, N, or N x one-hot columns or targets; of integers, floats or enumerations (NumPy's bool) of
// any width and byte order, contiguous or chunked, compressed by any filter of the installed HDF5 library
// (gzip, szip), virtual, or with values in other files. Values that were never written are the data set's
// fill value. Features of unsigned bytes stay bytes.
// A child process reads the file (hdf5_values.h), because the library has memory errors for damaged files.
// Errors: NotFound for a missing file or data set; DataLoss for what HDF5 cannot read, with its reason, and
// for a file at which the library fails or that keeps it busy without end; InvalidArgument for other types.
absl::StatusOr<TableRows> ReadHdf5(const std::string& path, const TableSpec& spec);

// Reads a packed shard (shard.cc): rows of a table in one file whose layout is used directly, mapped into
// memory. Workers of one machine then share the pages of a file, and opening one reads only its header and
// labels.
//
// Layout, little-endian:
//     0  "CMTSHARD"
//     8  version, uint32: 1
//    12  kind of value, uint32: 0 uint8, 1 float32
//    16  kind of label, uint32: 0 a class, int32; 1 real targets, float32
//    20  number of classes, or of targets in a row, uint32
//    24  number of dimensions of the shape, uint32: 1 to 3
//    28  the shape, 3 x uint32; 1 for dimensions that it does not have
//    40  rows, uint64
//    48  CRC-32 of the labels, uint32
//    52  CRC-32 of bytes 0 to 51, uint32
//    56  zeros
//    64  the values, rows x shape
//        zeros up to a multiple of 64 bytes
//        the labels, rows x 1 or rows x targets
//
// The values have no checksum: comparing it would mean to read all of them whenever a worker starts.
// Errors: InvalidArgument for another format or version; DataLoss for a file that is truncated, too long, or
// damaged in its header or labels.
absl::StatusOr<TableRows> ReadShard(const std::string& path, const TableSpec& spec);

// The values that WriteShard writes.
enum class PackedValues {
  kStored,  // SampleContent::bytes or floats, to which the data's normalization applies
  kAsRead,  // those that the network receives, as floats
};

// Writes rows begin .. end-1 of `data` as a packed shard.
// Errors: those of the file; InvalidArgument for NaN or infinity, with the row.
absl::Status WriteShard(const std::string& path, const Dataset& data, int64_t begin, int64_t end,
                        PackedValues packed = PackedValues::kStored);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_FORMATS_H_
