// One training step of a model on the emulated device: what is launched, copied and waited for, how much
// memory is accessed, and a model of the time that a GPU takes for it.
#ifndef CATCHMENT_TESTS_KERNELS_CUDA_PTX_STEP_RECORD_H_
#define CATCHMENT_TESTS_KERNELS_CUDA_PTX_STEP_RECORD_H_

#include <cstdint>
#include <vector>

#include "common/job/model_shapes.h"
#include "kernels/cuda/plugin_api.h"
#include "proto/job.pb.h"
#include "tests/kernels/cuda/ptx/recorder.h"

namespace catchment::ptx {

struct StepSpec {
  v1::Model model;
  SampleShape input;
  TargetShape target;
  CatchmentCudaPrecision precision = CATCHMENT_CUDA_FLOAT32;
};

// Records the third step of training with random samples. Without `execute`, kernels are only counted.
std::vector<Operation> RecordStep(const StepSpec& spec, int batch_size, bool execute);

// As RecordStep with `execute`, for batches too large to execute: what depends on the execution is
// extrapolated from two smaller batches, since it grows linearly with the batch. The larger of them is twice
// `small_batch`.
std::vector<Operation> ExtrapolateStep(const StepSpec& spec, int batch_size, int small_batch);

struct StepCounts {
  int64_t launches = 0, products = 0;
  double kernel_bytes = 0, product_bytes = 0;  // read and written
  // Copies between host and device through memory of the plugin's, which the host copies once more.
  int64_t staged_copies = 0;
  double staged_bytes = 0;
  int64_t waits = 0, waits_before_last_launch = 0;
};

StepCounts Count(const std::vector<Operation>& operations);

// Returns the seconds of a step on an H100, by a model whose constants are in step_record.cc. It has not been
// compared with a GPU.
double ModelSeconds(const std::vector<Operation>& operations, CatchmentCudaPrecision precision);

}  // namespace catchment::ptx

#endif  // CATCHMENT_TESTS_KERNELS_CUDA_PTX_STEP_RECORD_H_
