#include <algorithm>

#include "common/job/presets.h"
#include "common/model_shapes.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

// beta = workers * moving_rate of the paper (arXiv:1412.6651).
constexpr double kElasticBeta = 0.9;

// Sets field `name` of *message unless it is set.
#define CATCHMENT_DEFAULT(message, name, value)                 \
  do {                                                          \
    if (!(message)->has_##name()) (message)->set_##name(value); \
  } while (false)

void FillJob(v1::Job* job) {
  if (job->name().empty()) job->set_name("job");
  CATCHMENT_DEFAULT(job, batch_size, 64);
  CATCHMENT_DEFAULT(job, workers, 1);
  CATCHMENT_DEFAULT(job, seed, 1);
  CATCHMENT_DEFAULT(job, deterministic, false);
  CATCHMENT_DEFAULT(job, block_kib, 1024);
  if (job->budget_case() == v1::Job::BUDGET_NOT_SET) job->set_epochs(1);
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

template <typename Drawn>
void FillDrawn(uint32_t train_samples, uint32_t test_samples, Drawn* drawn) {
  CATCHMENT_DEFAULT(drawn, train_samples, train_samples);
  CATCHMENT_DEFAULT(drawn, test_samples, test_samples);
  CATCHMENT_DEFAULT(drawn, seed, 1);
}

void FillData(v1::Data* data) {
  if (data->has_synthetic()) CATCHMENT_DEFAULT(data->mutable_synthetic(), samples, 1000000);
  if (data->has_drawn_digits()) FillDrawn(20000, 4000, data->mutable_drawn_digits());
  if (data->has_generated_events()) FillDrawn(20000, 4000, data->mutable_generated_events());
  if (data->has_generated_images()) {
    FillDrawn(2048, 256, data->mutable_generated_images());
    CATCHMENT_DEFAULT(data->mutable_generated_images(), size, 224);
    CATCHMENT_DEFAULT(data->mutable_generated_images(), classes, 1000);
  }
  if (data->has_table()) {
    CATCHMENT_DEFAULT(data->mutable_table(), features, "features");
    CATCHMENT_DEFAULT(data->mutable_table(), labels, "labels");
  }
  if (!data->has_augmentation()) return;
  CATCHMENT_DEFAULT(data->mutable_augmentation(), crop_padding, 0);
  CATCHMENT_DEFAULT(data->mutable_augmentation(), flip, false);
}

void FillContribution(uint32_t workers, v1::Contribution* contribution) {
  if (contribution->has_gradient()) {
    v1::AccruedGradient* gradient = contribution->mutable_gradient();
    CATCHMENT_DEFAULT(gradient, push_period, 1);
    CATCHMENT_DEFAULT(gradient, fetch_period, gradient->push_period());
    CATCHMENT_DEFAULT(gradient, local_learning_rate, 0);
    CATCHMENT_DEFAULT(gradient, mean, false);
  } else if (contribution->has_elastic()) {
    v1::ElasticDifference* elastic = contribution->mutable_elastic();
    CATCHMENT_DEFAULT(elastic, communication_period, 4);
    CATCHMENT_DEFAULT(elastic, moving_rate, static_cast<float>(kElasticBeta / std::max(1u, workers)));
  } else if (contribution->has_pseudo_gradient()) {
    CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), local_steps, 16);
  } else if (contribution->has_energy_matching()) {
    v1::EnergyMatching* energy_matching = contribution->mutable_energy_matching();
    CATCHMENT_DEFAULT(energy_matching, learning_rate, 0.08f);
    CATCHMENT_DEFAULT(energy_matching, momentum, 0.9f);
    CATCHMENT_DEFAULT(energy_matching, energy, 1);
  } else if (contribution->has_look_ahead()) {
    CATCHMENT_DEFAULT(contribution->mutable_look_ahead(), momentum, 0.9f);
  }
}

void FillCompensation(v1::Compensation* compensation) {
  if (compensation->has_power()) {
    CATCHMENT_DEFAULT(compensation->mutable_power(), exponent, 1);
  } else if (compensation->has_exponential()) {
    CATCHMENT_DEFAULT(compensation->mutable_exponential(), rate, 0.1f);
  } else if (compensation->has_delay_compensated()) {
    v1::DelayCompensation* const delay = compensation->mutable_delay_compensated();
    CATCHMENT_DEFAULT(delay, adaptive, false);
    CATCHMENT_DEFAULT(delay, lambda, delay->adaptive() ? 2 : 0.04f);
    if (delay->adaptive()) CATCHMENT_DEFAULT(delay, decay, 0.95f);
  } else if (compensation->has_open_loop_momentum()) {
    v1::OpenLoopMomentum* const momentum = compensation->mutable_open_loop_momentum();
    CATCHMENT_DEFAULT(momentum, min_momentum, 0);
    CATCHMENT_DEFAULT(momentum, rate_correction, 0.7f);
    CATCHMENT_DEFAULT(momentum, averaging, 0.01f);
  } else if (compensation->has_closed_loop_momentum()) {
    v1::ClosedLoopMomentum* const momentum = compensation->mutable_closed_loop_momentum();
    CATCHMENT_DEFAULT(momentum, min_momentum, -0.9f);
    CATCHMENT_DEFAULT(momentum, gain, 0.01f);
    CATCHMENT_DEFAULT(momentum, coordinates, 64);
  } else if (compensation->kind_case() == v1::Compensation::KIND_NOT_SET) {
    compensation->mutable_none();
  }
}

void FillConsistency(v1::Job* job) {
  v1::Algorithm* algorithm = job->mutable_algorithm();
  if (algorithm->consistency().groups() > 0) {
    CATCHMENT_DEFAULT(algorithm->mutable_consistency(), spare_workers, 0);
  } else {
    CATCHMENT_DEFAULT(algorithm, emulated_delay, 0);
  }
  if (algorithm->contribution().has_elastic()) return;
  CATCHMENT_DEFAULT(job->mutable_optimizer(), worker_scaling, v1::Optimizer::NO_SCALING);
}

// Sets the fields of the optimizer's kind (optim/) that have defaults. They are PyTorch's, where it has the
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
  CATCHMENT_DEFAULT(job->mutable_faults(), worker_lease_seconds, std::max(10.0, job->workers() / 50.0));
  CATCHMENT_DEFAULT(job->mutable_faults(), non_finite_limit, 10);
  CATCHMENT_DEFAULT(job->mutable_faults(), connect_timeout_seconds, 60);
  CATCHMENT_DEFAULT(job->mutable_faults(), slowest_kib_per_second, 64);
  CATCHMENT_DEFAULT(job->mutable_faults(), stuck_seconds, 300);
}

#undef CATCHMENT_DEFAULT

}  // namespace

void FillDefaults(const Preset& preset, v1::Job* job) {
  FillJob(job);
  FillModel(job->mutable_model());
  FillData(job->mutable_data());
  ApplyPreset(preset, job);
  v1::Algorithm* algorithm = job->mutable_algorithm();
  if (algorithm->preset().empty()) algorithm->set_preset(preset.name);
  FillCompensation(algorithm->mutable_compensation());
  FillConsistency(job);
  FillContribution(job->workers(), algorithm->mutable_contribution());
  FillOptimizer(job->mutable_optimizer());
  if (algorithm->contribution().has_pseudo_gradient()) {
    FillOptimizer(algorithm->mutable_contribution()->mutable_pseudo_gradient()->mutable_local_optimizer());
  }
  FillCompression(job->mutable_compression());
  FillComputation(job->mutable_computation());
  FillKeeping(job);
}

}  // namespace catchment
