// The readers of tables, called in the same way by one fuzz target for each format.
#ifndef CATCHMENT_TESTS_FUZZ_TABLE_H_
#define CATCHMENT_TESTS_FUZZ_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tests/fuzz/input.h"
#include "worker/data/table/formats.h"

namespace catchment {

// Input: what a row must hold, in one byte; the file of features, with its length where `two_files`; the file
// of labels. `ending` is that of the files. Aborts if rows are returned that are not as required.
void TestTable(FuzzInput in, const std::string& ending, bool two_files,
               absl::StatusOr<TableRows> (*read)(const std::string& path, const TableSpec& spec));

}  // namespace catchment

#endif  // CATCHMENT_TESTS_FUZZ_TABLE_H_
