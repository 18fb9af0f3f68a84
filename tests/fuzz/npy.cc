// NumPy's array files.
#include "tests/fuzz/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::TestTable(catchment::FuzzInput(data, size), ".npy", /*two_files=*/true, catchment::ReadNpy);
  return 0;
}
