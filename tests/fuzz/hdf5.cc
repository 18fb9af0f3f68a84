// HDF5 files. The library itself is not instrumented.
#include "tests/fuzz/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::TestTable(catchment::FuzzInput(data, size), ".h5", /*two_files=*/false, catchment::ReadHdf5);
  return 0;
}
