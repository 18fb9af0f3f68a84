// Compares the emulator's counts for a training step with those of a model whose counts are known.
#include "tests/kernels/cuda/ptx/step_record.h"

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace catchment::ptx {
namespace {

StepSpec SpecOf(const std::string& model, SampleShape input) {
  StepSpec spec{{}, input, TargetShape(8), CATCHMENT_CUDA_FLOAT32};
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(model, &spec.model)) << model;
  return spec;
}

StepSpec Dense() { return SpecOf("layers { dense { units: 8 bias: false } }", SampleShape::Vector(16)); }

// 16 inputs, 8 units, a batch of 4. The samples (64 values), the weights (128) and the labels (4) are copied
// to the device, the scores (8) and the gradient (128) from it.
TEST(StepRecordTest, CountsAStepOfOneDenseLayer) {
  const StepCounts counts = Count(RecordStep(Dense(), 4, /*execute=*/true));
  EXPECT_EQ(counts.launches, 1) << "the loss";
  EXPECT_EQ(counts.products, 2) << "the output and the gradient of the weights";
  EXPECT_EQ(counts.product_bytes, 4 * ((64 + 128 + 32) + (32 + 64 + 128)));
  EXPECT_EQ(counts.kernel_bytes,
            128 + 32 /* outputs and labels */ + 128 + 32 /* their gradient and the scores */);
  EXPECT_EQ(counts.waits, 2) << "for the score and for the gradient";
  EXPECT_EQ(counts.waits_before_last_launch, 0);
  EXPECT_EQ(counts.staged_copies, 2) << "labels and scores; what the caller owns is copied directly";
}

// The host does not wait before all of the backward pass is issued, and does not copy weights, gradients and
// samples.
TEST(StepRecordTest, CopiesDirectlyAndWaitsLast) {
  const StepSpec spec = SpecOf(
      "layers { conv2d { filters: 8 kernel_size: 3 } } layers { batch_norm {} } "
      "layers { relu {} } layers { flatten {} }"
      "layers { dense { units: 8 } }",
      {3, 12, 12});
  const StepCounts counts = Count(RecordStep(spec, 8, /*execute=*/false));
  EXPECT_EQ(counts.waits, 4) << "for three layers and the score";
  EXPECT_EQ(counts.waits_before_last_launch, 0);
  EXPECT_EQ(counts.staged_copies, 2) << "labels and scores";
}

TEST(StepRecordTest, CountsEachSectorOnceHoweverOftenItIsRead) {
  // Each value of the input is in up to nine windows, which are gathered; 10 x 10 x 8 values of 4 bytes.
  const StepSpec spec = SpecOf(
      "layers { conv2d { filters: 8 kernel_size: 3 padding: 1 bias: false } } "
      "layers { global_average_pool {} }",
      {8, 10, 10});
  for (const Operation& operation : RecordStep(spec, 2, /*execute=*/true)) {
    if (operation.name.find("6Gather") == std::string::npos) continue;
    EXPECT_EQ(operation.bytes_read, 2 * 10 * 10 * 8 * 4);
    EXPECT_EQ(operation.bytes_written, 2 * 10 * 10 * 8 * 9 * 4);
    return;
  }
  FAIL() << "no patches are gathered";
}

// Two passes forward, of which the first reads and the second reads and writes all values; and two backward,
// which compute again what they need. Eight channels of parameters or statistics are one sector of 32 bytes.
TEST(StepRecordTest, CountsTheKernelsOfABatchNorm) {
  const StepSpec spec =
      SpecOf("layers { batch_norm {} } layers { relu {} } layers { global_average_pool {} }", {8, 10, 10});
  constexpr double kValues = 2 * 10 * 10 * 8 * 4, kChannels = 8 * 4;
  struct Bytes {
    const char* kernel;
    double read, written;
  };
  const Bytes expected[] = {{"Measure", kValues, 3 * kChannels /* mean, variance, scale */},
                            {"Normalize", kValues + 4 * kChannels /* mean, scale, weight, bias */, kValues},
                            {"SumGradients", 2 * kValues + 4 * kChannels,
                             4 * kChannels /* the sums, and the gradient of the parameters */},
                            {"ToInput", 2 * kValues + 6 * kChannels /* the sums too */, kValues}};
  std::vector<Operation> norms;
  for (const Operation& operation : RecordStep(spec, 2, /*execute=*/true)) {
    if (operation.name.find("BatchNorm") != std::string::npos) norms.push_back(operation);
  }
  ASSERT_EQ(norms.size(), 4u);
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_NE(norms[i].name.find(expected[i].kernel), std::string::npos) << norms[i].name;
    EXPECT_EQ(norms[i].bytes_read, expected[i].read) << expected[i].kernel;
    EXPECT_EQ(norms[i].bytes_written, expected[i].written) << expected[i].kernel;
    EXPECT_GT(norms[i].accessed_bytes / norms[i].accesses, 14)
        << expected[i].kernel << ": nearly all by 16 bytes";
  }
}

// Convolutions, batch norms and sums store what they read from each other, and its gradient, in 2 bytes a
// value. No kernel rounds it for a product.
TEST(StepRecordTest, ValuesBetweenConvolutionsBatchNormsAndSumsHave16Bits) {
  StepSpec spec = SpecOf(
      "layers { conv2d { filters: 8 kernel_size: 3 padding: 1 bias: false } } layers { batch_norm {} }"
      "layers { residual { layers { conv2d { filters: 8 kernel_size: 1 bias: false } } "
      "layers { batch_norm {} } } }"
      "layers { relu {} } layers { conv2d { filters: 8 kernel_size: 1 } } layers { global_average_pool {} }",
      {8, 10, 10});
  spec.precision = CATCHMENT_CUDA_BFLOAT16;
  constexpr double kValues = 2 * 10 * 10 * 8 * 2, kChannels = 8 * 4;
  struct Bytes {
    std::string kernel;
    int launches;
    double read, written;
  };
  // As in the test above, with half of the values' bytes. The sum computes the output of the second batch
  // norm. Without a relu, sums of gradients need no output. Both inputs of the sum read the sum's gradient,
  // which has to be written only where the relu has set values to zero.
  const Bytes expected[] = {{"Measure", 2, kValues, 3 * kChannels},
                            {"9BatchNorm9Normalize", 1, kValues + 4 * kChannels, kValues},
                            {"SumGradients", 2, 2 * kValues + 2 * kChannels, 4 * kChannels},
                            {"ToInput", 2, 2 * kValues + 6 * kChannels, kValues},
                            {"3Add3Sum", 1, 2 * kValues + 4 * kChannels, kValues},
                            {"SumPacks", 1, 2 * kValues, kValues},
                            {"GiveBack", 1, 2 * kValues, kValues},
                            {"6Factor4Copy", 0, 0, 0}};
  std::vector<Operation> operations = RecordStep(spec, 2, /*execute=*/true);
  // The pooling's, which is of float32.
  std::erase_if(operations, [](const Operation& operation) {
    return operation.name.find("GlobalAveragePool") != std::string::npos;
  });
  for (const Bytes& bytes : expected) {
    int launches = 0;
    for (const Operation& operation : operations) {
      if (operation.name.find(bytes.kernel) == std::string::npos) continue;
      ++launches;
      EXPECT_EQ(operation.bytes_read, bytes.read) << operation.name;
      EXPECT_EQ(operation.bytes_written, bytes.written) << operation.name;
    }
    EXPECT_EQ(launches, bytes.launches) << bytes.kernel;
  }
}

TEST(StepRecordTest, ExtrapolatesWhatLargerBatchesAccess) {
  const StepSpec spec = SpecOf(
      "layers { conv2d { filters: 8 kernel_size: 3 } } layers { relu {} } layers { flatten {} }"
      "layers { dense { units: 8 } }",
      {8, 32, 32});
  const StepCounts executed = Count(RecordStep(spec, 8, /*execute=*/true));
  const StepCounts extrapolated = Count(ExtrapolateStep(spec, 8, 2));
  EXPECT_EQ(extrapolated.launches, executed.launches);
  EXPECT_NEAR(extrapolated.kernel_bytes, executed.kernel_bytes, 1e-3 * executed.kernel_bytes);
}

Operation Kernel(double bytes) {
  Operation kernel;
  kernel.bytes_read = bytes;
  kernel.accesses = kernel.threads = 1e6;
  kernel.accessed_bytes = 16e6;
  return kernel;
}

TEST(StepRecordTest, ModelsTheBoundsOfAStep) {
  const auto seconds = [](const std::vector<Operation>& operations) {
    return ModelSeconds(operations, CATCHMENT_CUDA_FLOAT32);
  };
  EXPECT_NEAR(seconds({Kernel(2.7e12)}), 1, 1e-4) << "as long as memory takes";
  EXPECT_NEAR(seconds({Kernel(2.7e12), Kernel(2.7e12)}), 2, 1e-4) << "one kernel after another";
  Operation few = Kernel(2.7e12);
  few.threads = 132 * 32;
  EXPECT_GT(seconds({few}), 2) << "too few threads keep memory busy";
  Operation copy;
  copy.kind = Operation::Kind::kCopyIn;
  copy.bytes_read = 45e9;
  EXPECT_NEAR(seconds({copy}), 1, 1e-4);
  copy.staged = true;
  EXPECT_NEAR(seconds({copy}), 1 + 5, 1e-4) << "the host copies 9 GB a second";
  Operation wait;
  wait.kind = Operation::Kind::kWait;
  wait.awaited = 2;
  Operation out = copy;
  out.kind = Operation::Kind::kCopyOut;
  out.staged = false;
  EXPECT_NEAR(seconds({Kernel(2.7e12), out, wait, Kernel(2.7e12)}), 3, 1e-3)
      << "the device idles while the host waits";
  EXPECT_NEAR(seconds({Kernel(2.7e12), out, Kernel(2.7e12), wait}), 2, 1e-3) << "it does not";
}

}  // namespace
}  // namespace catchment::ptx
