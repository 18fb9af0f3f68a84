// Tables of comma-separated values.
#include "tests/fuzz/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::TestTable(catchment::FuzzInput(data, size), ".csv", /*two_files=*/false, catchment::ReadCsv);
  return 0;
}
