// CIFAR-10's binary files, gzipped or not.
//
// Input: one file, for training and for tests.
#include <glog/logging.h>

#include <vector>

#include "tests/fuzz/input.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

void Test(absl::string_view bytes) {
  WriteFuzzFile("cifar10/train.bin", bytes);
  WriteFuzzFile("cifar10/test.bin", bytes);
  v1::Cifar10 cifar10;
  cifar10.set_directory(FuzzDirectory() + "/cifar10");
  const absl::StatusOr<DataSets> data = LoadCifar10(cifar10, {});
  if (!data.ok()) return;
  std::vector<float> sample(data->train.input_shape().size());
  for (int64_t i = 0; i < data->train.size(); ++i) {
    data->train.CopyInput(i, sample.data());
    CHECK_LT(data->train.label(i), 10);
  }
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test({reinterpret_cast<const char*>(data), size});
  return 0;
}
