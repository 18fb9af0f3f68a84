#include "common/job/validate.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/codec/codec.h"
#include "common/job/algorithm_facts.h"
#include "common/job/checks.h"
#include "common/job/compensation_kinds.h"
#include "common/job/contribution_kinds.h"
#include "common/job/data_sources.h"
#include "common/job/model_shapes.h"
#include "common/job/presets.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxBatchSize = 1000000;
constexpr uint32_t kMaxBlockKib = 65536;
constexpr size_t kMaxNameLength = 100;
constexpr double kMaxStepMs = 600000;
constexpr double kMaxSpread = 3;
constexpr double kMaxSlowness = 1000;
// The most epochs between two evaluations, whose numbers have 64 bits.
constexpr double kMaxEvaluationEpochs = 1e9;
// The largest budget: samples are counted in 64 bits.
constexpr double kMaxBudget = 9e18;

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; }

void CheckName(const std::string& name, Problems* problems) {
  if (!std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    problems->Add("name", Reason::kRange,
                  absl::StrCat("\"", name, "\" may have letters, digits, '-', '_' and '.' only"));
  }
  if (name[0] == '.')
    problems->Add("name", Reason::kRange, absl::StrCat("\"", name, "\" must not begin with '.'"));
  if (name.size() > kMaxNameLength) {
    problems->Add("name", Reason::kRange,
                  absl::StrCat("has ", name.size(), " characters; at most ", kMaxNameLength));
  }
}

void CheckBudget(const v1::Job& job, Problems* problems) {
  switch (job.budget_case()) {
    case v1::Job::kEpochs:
      return problems->Within<uint64_t>(1, 1000000000, "epochs", job.epochs());
    case v1::Job::kSamples:
      return problems->AtLeast<uint64_t>(1, "samples", job.samples());
    case v1::Job::kUpdates:
      break;
    case v1::Job::BUDGET_NOT_SET:
      return;
  }
  problems->AtLeast<uint64_t>(1, "updates", job.updates());
  const double steps = PushPeriod(job.algorithm().contribution());
  const double samples = 1.0 * job.updates() * steps * job.batch_size() * job.workers();
  problems->Require(samples <= kMaxBudget, "updates", job.updates(),
                    "with this batch_size and these workers that is more samples than can be counted");
}

void CheckJob(const v1::Job& job, Problems* problems) {
  CheckName(job.name(), problems);
  problems->Within<uint32_t>(1, kMaxBatchSize, "batch_size", job.batch_size());
  problems->Within<uint32_t>(1, kMaxWorkers, "workers", job.workers());
  problems->Within<uint32_t>(1, kMaxBlockKib, "block_kib", job.block_kib());
  problems->Require(v1::Device_IsValid(job.device()), "device", static_cast<int>(job.device()),
                    "must be AUTO, CPU or CUDA");
  problems->Require(v1::Job::LastMinibatch_IsValid(job.last_minibatch()), "last_minibatch",
                    static_cast<int>(job.last_minibatch()), "must be KEEP, DROP or MERGE");
  problems->Require(job.batch_size() > kMaxBatchSize || LargestMinibatch(job) <= kMaxBatchSize,
                    "last_minibatch", "MERGE",
                    absl::StrCat("with this batch_size an epoch's last minibatch can have ",
                                 LargestMinibatch(job), " samples, and a minibatch has at most ",
                                 kMaxBatchSize, "; use KEEP, DROP or a smaller batch_size"));
  // The last contribution has the samples of up to two periods.
  const uint64_t steps = PushPeriod(job.algorithm().contribution());
  problems->Require(2 * steps * LargestMinibatch(job) <= std::numeric_limits<uint32_t>::max(), "batch_size",
                    job.batch_size(),
                    absl::StrCat("with ", steps,
                                 " steps between two contributions, one can have more "
                                 "samples than can be counted (2^32 - 1); lower it or the number of steps"));
  CheckBudget(job, problems);
}

void CheckRandomResizedCrop(const v1::Data& data, Problems* problems) {
  const std::string path = "data.augmentation.random_resized_crop";
  constexpr float kMaxRatio = 1000;
  if (!data.has_image_folder()) {
    return problems->Add(path, Reason::kNeeds,
                         "is for data.image_folder, whose images have many sizes; use crop_padding");
  }
  const v1::RandomResizedCrop& crop = data.augmentation().random_resized_crop();
  problems->Positive(path + ".min_scale", crop.min_scale());
  problems->Within(crop.min_scale(), 1.0f, path + ".max_scale", crop.max_scale());
  problems->Within(1 / kMaxRatio, kMaxRatio, path + ".min_ratio", crop.min_ratio());
  problems->Within(crop.min_ratio(), kMaxRatio, path + ".max_ratio", crop.max_ratio());
}

void CheckLoaderThreads(const v1::Data& data, Problems* problems) {
  constexpr uint32_t kMaxLoaderThreads = 256;
  if (data.has_loader_threads())
    problems->Within<uint32_t>(1, kMaxLoaderThreads, "data.loader_threads", data.loader_threads());
}

// Returns true if the data say what samples and targets are, so that a model can be checked against them.
bool SayTheirShape(const v1::Data& data) {
  if (data.has_image_folder()) return data.image_folder().classes() >= 1 && data.image_folder().size() >= 1;
  return !data.has_table() || SaysItsShape(data.table());
}

void CheckAugmentation(const v1::Data& data, Problems* problems) {
  if (data.augmentation().has_random_resized_crop()) CheckRandomResizedCrop(data, problems);
  const SampleShape shape = ShapeOf(data).input;
  if (data.has_synthetic() || shape.kind != SampleKind::kImage) {
    return problems->Add("data.augmentation", Reason::kUnused,
                         "is for images; this data has none, leave it out");
  }
  problems->Require(data.augmentation().crop_padding() < std::min(shape.height, shape.width),
                    "data.augmentation.crop_padding", data.augmentation().crop_padding(),
                    absl::StrCat("must be below the images' size, ", std::min(shape.height, shape.width)));
}

void CheckData(const v1::Job& job, Problems* problems) {
  const v1::Data& data = job.data();
  if (data.source_case() == v1::Data::SOURCE_NOT_SET) {
    return problems->Add("data", Reason::kMissing, "has no source; give one of " + ListDataSources());
  }
  if (const auto check = SourceOf(data).check; check != nullptr) check(job, problems);
  CheckLoaderThreads(data, problems);
  if (data.has_augmentation() && SayTheirShape(data)) CheckAugmentation(data, problems);
}

// Checks that model and data are both synthetic, or neither: one alone has nothing to compute with, or
// nothing to compute.
void CheckSynthetic(const v1::Job& job, Problems* problems) {
  if (!job.data().has_synthetic()) {
    problems->Add("model.synthetic", Reason::kNeeds,
                  "does not read samples; use it only with data { synthetic {} }");
  } else if (!job.model().has_synthetic()) {
    problems->Add("data.synthetic", Reason::kNeeds,
                  "has samples without content; use it only with model { synthetic {} }");
  }
  const v1::SyntheticModel& model = job.model().synthetic();
  problems->Within<double>(0, kMaxStepMs, "model.synthetic.step_ms", model.step_ms());
  problems->Within<double>(0, kMaxSpread, "model.synthetic.spread", model.spread());
}

// Names the layers of `list` as InferShapes named them. Of a residual block its branch's layers come first,
// then its shortcut's, then itself.
void NameLayers(google::protobuf::RepeatedPtrField<v1::Layer>* list,
                std::vector<LayerShape>::const_iterator* next) {
  for (v1::Layer& layer : *list) {
    if (layer.has_residual()) {
      NameLayers(layer.mutable_residual()->mutable_layers(), next);
      NameLayers(layer.mutable_residual()->mutable_shortcut(), next);
    }
    layer.set_name((*next)++->name);
  }
}

// Checks the model, and names its layers. Returns its tensors, as far as they are known.
std::vector<TensorSpec> CheckModel(v1::Job* job, Problems* problems) {
  if (job->model().has_external() || job->data().has_external()) CheckExternal(*job, problems);
  if (job->data().has_external() && !job->model().has_external()) return {};
  if (job->model().has_synthetic() || job->data().has_synthetic()) CheckSynthetic(*job, problems);
  if (job->data().has_synthetic() && !job->model().has_synthetic()) return {};
  const bool lacks_data = job->data().source_case() == v1::Data::SOURCE_NOT_SET;
  if (!SayTheirShape(job->data()) || (lacks_data && !job->model().layers().empty())) return {};
  const DataShape shape = ShapeOf(job->data());
  const auto layers = InferShapes(job->model(), shape.input, shape.target);
  if (!layers.ok()) {
    problems->AddLines(layers.status().message(), Reason::kModel);
    return {};
  }
  auto next = layers->begin();
  NameLayers(job->mutable_model()->mutable_layers(), &next);
  return ListTensors(*layers);
}

void CheckAlgorithm(const v1::Job& job, Problems* problems) {
  CheckConsistency(job, problems);
  const v1::Contribution& contribution = job.algorithm().contribution();
  KindOf(contribution).check(job, problems);
}

void CheckErrorFeedback(const v1::Compression& compression, Problems* problems) {
  const std::string path = "compression.top_k_fraction";
  const float fraction = compression.top_k_fraction();
  if (compression.push() == v1::Compression::TOP_K) {
    problems->Require(fraction > 0 && fraction <= 1, path, fraction, "must be in (0, 1]");
  } else if (compression.has_top_k_fraction()) {
    problems->Add(path, Reason::kUnused,
                  "belongs to push TOP_K; leave it out, or set compression.push to TOP_K");
  }
  const float decay = compression.residual_decay();
  if (HasErrorFeedback(compression.push())) {
    problems->Require(decay > 0 && decay <= 1, "compression.residual_decay", decay, "must be in (0, 1]");
  } else if (compression.has_residual_decay()) {
    problems->Add("compression.residual_decay", Reason::kUnused,
                  "belongs to codecs with error feedback; leave it out, "
                  "or set compression.push to TOP_K, INT8, E2M1 or E3M0");
  }
  if (HasErrorFeedback(compression.pull())) {
    problems->Add(
        "compression.pull", Reason::kRange,
        absl::StrCat("is ", v1::Compression::Codec_Name(compression.pull()),
                     ", which is for gradients: it adds what it loses to the next gradient, but a pull "
                     "has no residual; must be FLOAT32, BFLOAT16 or FLOAT16"));
  }
}

void CheckElasticCompression(const std::string& path, v1::Compression::Codec codec, Problems* problems) {
  if (codec == v1::Compression::FLOAT32) return;
  problems->Add(path, Reason::kConflict,
                absl::StrCat("is ", v1::Compression::Codec_Name(codec),
                             "; must be FLOAT32 with contribution elastic: worker and center must move by "
                             "the same difference, which rounding would break"));
}

void CheckCompression(const v1::Job& job, Problems* problems) {
  const v1::Compression& compression = job.compression();
  for (const auto& [path, codec] : {std::pair("compression.push", compression.push()),
                                    std::pair("compression.pull", compression.pull())}) {
    if (!v1::Compression::Codec_IsValid(codec)) {
      problems->Require(false, path, static_cast<int>(codec),
                        "must be one of FLOAT32, BFLOAT16, FLOAT16, TOP_K, INT8, E2M1, E3M0");
    } else if (job.algorithm().contribution().has_elastic()) {
      CheckElasticCompression(path, codec, problems);
    }
  }
  CheckErrorFeedback(compression, problems);
}

void CheckStragglers(const v1::Faults& faults, Problems* problems) {
  std::set<uint32_t> seen;
  for (int i = 0; i < faults.stragglers_size(); ++i) {
    const v1::Straggler& straggler = faults.stragglers(i);
    const std::string path = absl::StrCat("faults.stragglers[", i, "].");
    problems->Within<double>(1, kMaxSlowness, path + "slowdown_factor", straggler.slowdown_factor());
    problems->Require(seen.insert(straggler.worker()).second, path + "worker", straggler.worker(),
                      "must be unique; give each worker at most one straggler");
  }
}

void CheckKeeping(const v1::Job& job, Problems* problems) {
  problems->AtLeast<uint32_t>(1, "checkpoint.keep", job.checkpoint().keep());
  problems->AtLeast<double>(0, "checkpoint.every_seconds", job.checkpoint().every_seconds());
  problems->Within<double>(kMinEvaluationEpochs, kMaxEvaluationEpochs, "evaluation.every_epochs",
                           job.evaluation().every_epochs());
  problems->Positive("faults.heartbeat_timeout_seconds", job.faults().heartbeat_timeout_seconds());
  problems->AtLeast<uint32_t>(1, "faults.non_finite_limit", job.faults().non_finite_limit());
  problems->Positive("faults.connect_timeout_seconds", job.faults().connect_timeout_seconds());
  problems->AtLeast<double>(0, "faults.stuck_seconds", job.faults().stuck_seconds());
  problems->AtLeast<double>(0, "faults.hold_up_seconds", job.faults().hold_up_seconds());
  problems->Within<uint32_t>(0, 1, "faults.standby", job.faults().standby());
  CheckStragglers(job.faults(), problems);
}

// Returns the preset that the job asks for; for an unknown one the default, so that the rest can still be
// checked.
const Preset& ChoosePreset(const std::string& name, Problems* problems) {
  if (name.empty()) return Presets().front();
  if (const Preset* preset = FindPreset(name)) return *preset;
  problems->Add("algorithm.preset", Reason::kUnknown, UnknownPreset(name));
  return Presets().front();
}

}  // namespace

Problems FillDefaultsAndCheck(v1::Job* job) {
  Problems problems;
  FillDefaults(ChoosePreset(job->algorithm().preset(), &problems), job);
  CheckJob(*job, &problems);
  const std::vector<TensorSpec> tensors = CheckModel(job, &problems);
  CheckData(*job, &problems);
  CheckAlgorithm(*job, &problems);
  CheckCompensation(*job, &problems);
  CheckOptimizer(job->optimizer(), job->algorithm().contribution().has_elastic(), &problems);
  CheckGroups(*job, tensors, &problems);
  CheckPlateau(*job, &problems);
  if (job->model().external().local_steps()) {
    if (absl::Status status = CheckLocalSteps(*job); !status.ok())
      problems.AddLines(status.message(), Reason::kConflict);
  }
  CheckCompression(*job, &problems);
  CheckComputation(*job, &problems);
  CheckKeeping(*job, &problems);
  CheckEvaluation(*job, &problems);
  return problems;
}

absl::StatusOr<v1::Job> FillDefaultsAndValidate(v1::Job job) {
  RETURN_IF_ERROR(FillDefaultsAndCheck(&job).ToStatus());
  return job;
}

}  // namespace catchment
