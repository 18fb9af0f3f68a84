// Packed shards: rows of a table in one file, laid out so that they are used where they lie, mapped into
// memory. Workers of one machine then share the pages of a file, and opening one reads nothing but its header
// and labels.
//
// Layout, little-endian:
//     0  "CMTSHARD"
//     8  version, uint32: 1
//    12  kind of value, uint32: 0 uint8, 1 float32
//    16  kind of label, uint32: 0 a class, int32; 1 real targets, float32
//    20  classes, or targets a row, uint32
//    24  dimensions of the shape, uint32: 1 to 3
//    28  the shape, 3 x uint32; what it does not have is 1
//    40  rows, uint64
//    48  CRC-32 of the labels, uint32
//    52  CRC-32 of bytes 0 to 51, uint32
//    56  zeros
//    64  the values, rows x shape
//        zeros up to a multiple of 64 bytes
//        the labels, rows x 1 or rows x targets
//
// Values have no checksum: to compute it would be to read them all whenever a worker starts.
#ifndef CATCHMENT_WORKER_DATA_TABLE_SHARD_H_
#define CATCHMENT_WORKER_DATA_TABLE_SHARD_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/table_rows.h"

namespace catchment {

// Errors, each naming the file: MappedFile's; InvalidArgument for another format or version, and for a shape,
// labels or values that are not spec's; DataLoss for a file that is cut short, too long, or damaged in header
// or labels.
absl::StatusOr<TableRows> ReadShard(const std::string& path, const TableSpec& spec);

// Writes rows begin .. end-1 of `data`, values as they are kept (SampleContent::bytes, floats).
// Errors: of the file; InvalidArgument for NaN or infinity, with the row.
absl::Status WriteShard(const std::string& path, const Dataset& data, int64_t begin, int64_t end);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_SHARD_H_
