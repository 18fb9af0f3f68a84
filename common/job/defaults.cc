#include <algorithm>

#include "common/codec/codec.h"
#include "common/job/algorithm_facts.h"
#include "common/job/checks.h"
#include "common/job/compensation_kinds.h"
#include "common/job/consistency_kinds.h"
#include "common/job/contribution_kinds.h"
#include "common/job/data_sources.h"
#include "common/job/model_shapes.h"
#include "common/job/presets.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

void FillJob(v1::Job* job) {
  if (job->name().empty()) job->set_name("job");
  CATCHMENT_DEFAULT(job, batch_size, 64);
  CATCHMENT_DEFAULT(job, workers, 1);
  CATCHMENT_DEFAULT(job, seed, 1);
  CATCHMENT_DEFAULT(job, deterministic, false);
  CATCHMENT_DEFAULT(job, block_kib, 1024);
  CATCHMENT_DEFAULT(job, shared_memory, true);
  if (job->budget_case() == v1::Job::BUDGET_NOT_SET) job->set_epochs(1);
}

void FillLastMinibatch(v1::Job* job) {
  if (job->last_minibatch() != v1::Job::LAST_MINIBATCH_UNSET) return;
  job->set_last_minibatch(v1::Job::KEEP);
  const uint64_t step = SamplesPerStep(*job), samples = job->data().external().train_samples();
  if (step == 0 || samples < step) return;
  // A step's samples are divided among its workers: fewer than two for each leave one of them with a single
  // one.
  const uint64_t rest = samples % step, workers = step / job->batch_size();
  if (rest > 0 && rest < 2 * workers) job->set_last_minibatch(v1::Job::DROP);
}

void FillModel(v1::Model* model) {
  if (model->has_synthetic()) {
    CATCHMENT_DEFAULT(model->mutable_synthetic(), step_ms, 100);
    CATCHMENT_DEFAULT(model->mutable_synthetic(), spread, 0);
    return;
  }
  if (model->has_external()) return;
  FillLayerDefaults(model->mutable_layers());
  v1::Loss* loss = model->mutable_loss();
  if (loss->kind() == v1::Loss::LOSS_UNSET) loss->set_kind(v1::Loss::SOFTMAX_CROSS_ENTROPY);
  if (loss->kind() != v1::Loss::MEAN_SQUARED_ERROR) CATCHMENT_DEFAULT(loss, label_smoothing, 0);
}

void FillData(v1::Data* data) {
  if (const auto fill = SourceOf(*data).fill_defaults; fill != nullptr) fill(data);
  if (HasContent(*data)) CATCHMENT_DEFAULT(data, loader_threads, data->has_image_folder() ? 2 : 1);
  if (!data->has_augmentation()) return;
  CATCHMENT_DEFAULT(data->mutable_augmentation(), crop_padding, 0);
  CATCHMENT_DEFAULT(data->mutable_augmentation(), flip, false);
  if (!data->augmentation().has_random_resized_crop()) return;
  v1::RandomResizedCrop* const crop = data->mutable_augmentation()->mutable_random_resized_crop();
  CATCHMENT_DEFAULT(crop, min_scale, 0.08f);
  CATCHMENT_DEFAULT(crop, max_scale, 1);
  CATCHMENT_DEFAULT(crop, min_ratio, 3.0f / 4);
  CATCHMENT_DEFAULT(crop, max_ratio, 4.0f / 3);
}

void FillWorkerScaling(v1::Job* job) {
  if (job->algorithm().contribution().has_elastic()) return;
  CATCHMENT_DEFAULT(job->mutable_optimizer(), worker_scaling, v1::Optimizer::NO_SCALING);
}

// Sets the fields of the optimizer's kind (optim/) that have defaults. They are PyTorch's, if it has the
// kind.
void FillKind(v1::Optimizer* optimizer) {
  const OptimizerKind* const kind = FindOptimizerKind(optimizer->kind());
  if (kind == nullptr) return;
  const google::protobuf::Reflection& reflection = *optimizer->GetReflection();
  for (const OptimizerField& field : kind->fields) {
    const auto* const descriptor = optimizer->GetDescriptor()->FindFieldByName(field.name);
    if (!field.default_value.has_value() || reflection.HasField(*optimizer, descriptor)) continue;
    if (descriptor->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL) {
      reflection.SetBool(optimizer, descriptor, *field.default_value != 0);
    } else {
      reflection.SetFloat(optimizer, descriptor, *field.default_value);
    }
  }
}

void FillSchedule(v1::Schedule* schedule) {
  CATCHMENT_DEFAULT(schedule, warmup, 0);
  switch (schedule->decay()) {
    case v1::Schedule::STEP:
      CATCHMENT_DEFAULT(schedule, step_every, 1.0f / 3);
      CATCHMENT_DEFAULT(schedule, factor, 0.1f);
      break;
    case v1::Schedule::EXPONENTIAL:
      CATCHMENT_DEFAULT(schedule, final_fraction, 0.01f);
      break;
    case v1::Schedule::POLYNOMIAL:
      CATCHMENT_DEFAULT(schedule, final_fraction, 0);
      CATCHMENT_DEFAULT(schedule, power, 1);
      break;
    case v1::Schedule::ONE_CYCLE:
      CATCHMENT_DEFAULT(schedule, final_fraction, 0);
      CATCHMENT_DEFAULT(schedule, pct_start, 0.3f);
      CATCHMENT_DEFAULT(schedule, initial_lr_fraction, 0.04f);
      break;
    case v1::Schedule::COSINE:
      CATCHMENT_DEFAULT(schedule, final_fraction, 0);
      break;
    case v1::Schedule::PLATEAU:
      CATCHMENT_DEFAULT(schedule, final_fraction, 0);
      CATCHMENT_DEFAULT(schedule, factor, 0.1f);
      CATCHMENT_DEFAULT(schedule, patience, 10);
      CATCHMENT_DEFAULT(schedule, threshold, 1e-4f);
      break;
    default:
      break;
  }
}

void FillOptimizer(v1::Optimizer* optimizer) {
  FillKind(optimizer);
  FillSchedule(optimizer->mutable_schedule());
}

void FillCompression(v1::Compression* compression) {
  CATCHMENT_DEFAULT(compression, push, v1::Compression::FLOAT32);
  CATCHMENT_DEFAULT(compression, pull, v1::Compression::FLOAT32);
  if (compression->push() == v1::Compression::TOP_K) CATCHMENT_DEFAULT(compression, top_k_fraction, 0.01f);
  if (HasErrorFeedback(compression->push())) CATCHMENT_DEFAULT(compression, residual_decay, 1);
}

// The loss scale is PyTorch's GradScaler's.
void FillComputation(v1::Computation* computation) {
  if (computation->precision() == v1::Computation::PRECISION_UNSET)
    computation->set_precision(v1::Computation::FLOAT32);
  if (computation->precision() != v1::Computation::FLOAT16) return;
  CATCHMENT_DEFAULT(computation, loss_scale, 65536);
  CATCHMENT_DEFAULT(computation, loss_scale_period, 2000);
}

void FillEvaluation(v1::Evaluation* evaluation) {
  CATCHMENT_DEFAULT(evaluation, every_epochs, 1);
  CATCHMENT_DEFAULT(evaluation, patience, 0);
  CATCHMENT_DEFAULT(evaluation, min_improvement, 0);
  if (evaluation->best_by() == v1::Evaluation::MEASURE_UNSET) evaluation->set_best_by(v1::Evaluation::LOSS);
  CATCHMENT_DEFAULT(evaluation, keep_best, evaluation->patience() > 0);
}

void FillKeeping(v1::Job* job) {
  CATCHMENT_DEFAULT(job->mutable_checkpoint(), every_seconds,
                    job->checkpoint().has_every_updates() ? 0 : 300);
  CATCHMENT_DEFAULT(job->mutable_checkpoint(), every_updates, 0);
  CATCHMENT_DEFAULT(job->mutable_checkpoint(), keep, 2);
  FillEvaluation(job->mutable_evaluation());
  CATCHMENT_DEFAULT(job->mutable_faults(), heartbeat_timeout_seconds, std::max(10.0, job->workers() / 50.0));
  CATCHMENT_DEFAULT(job->mutable_faults(), non_finite_limit, 10);
  CATCHMENT_DEFAULT(job->mutable_faults(), connect_timeout_seconds, 60);
  CATCHMENT_DEFAULT(job->mutable_faults(), slowest_kib_per_second, 64);
  CATCHMENT_DEFAULT(job->mutable_faults(), stuck_seconds, 300);
  CATCHMENT_DEFAULT(job->mutable_faults(), hold_up_seconds, 20);
  CATCHMENT_DEFAULT(job->mutable_faults(), standby, 0);
}

}  // namespace

void FillDefaults(const Preset& preset, v1::Job* job) {
  FillJob(job);
  FillModel(job->mutable_model());
  FillData(job->mutable_data());
  ApplyPreset(preset, job);
  v1::Algorithm* algorithm = job->mutable_algorithm();
  if (algorithm->preset().empty()) algorithm->set_preset(preset.name);
  KindOf(algorithm->consistency()).fill_defaults(algorithm->contribution(), algorithm->mutable_consistency());
  FillWorkerScaling(job);
  KindOf(algorithm->contribution()).fill_defaults(job->workers(), algorithm->mutable_contribution());
  FillCompensation(job);
  FillOptimizer(job->mutable_optimizer());
  if (algorithm->contribution().has_pseudo_gradient()) {
    FillOptimizer(algorithm->mutable_contribution()->mutable_pseudo_gradient()->mutable_local_optimizer());
  }
  FillCompression(job->mutable_compression());
  FillComputation(job->mutable_computation());
  FillLastMinibatch(job);
  FillKeeping(job);
}

}  // namespace catchment
