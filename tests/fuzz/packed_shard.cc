// Packed shards.
#include "tests/fuzz/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::TestTable(catchment::FuzzInput(data, size), ".shard", /*two_files=*/false, catchment::ReadShard);
  return 0;
}
