// Reads comma-separated values: a row a line, all of them numbers, its label or targets in the last or the
// first columns.
//
// A first line none of whose fields is a number is a line of names, and skipped. Lines end with \n or \r\n;
// spaces around a number do not count; there are no quotes.
//
// Source: RFC 4180, without its quoted fields.
#ifndef CATCHMENT_WORKER_DATA_TABLE_CSV_H_
#define CATCHMENT_WORKER_DATA_TABLE_CSV_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/table_rows.h"

namespace catchment {

// Errors: MappedFile's; InvalidArgument that names file, row (counted from 1, a line of names too) and column
// (counted from 1).
absl::StatusOr<TableRows> ReadCsv(const std::string& path, const TableSpec& spec);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_CSV_H_
