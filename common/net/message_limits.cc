#include "common/net/message_limits.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/program_metrics.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr auto kAny = FieldLimit::kAny;
constexpr auto kNumber = FieldLimit::kNumber;
constexpr auto kLine = FieldLimit::kLine;
constexpr auto kText = FieldLimit::kText;
constexpr auto kFile = FieldLimit::kFile;
constexpr auto kCount = FieldLimit::kCount;

constexpr double kWorkers = kMaxWorkers;
constexpr double kNameBytes = 255, kTensorNameBytes = 1024, kReasonBytes = 1024, kTokenBytes = 64;
constexpr double kBootIdBytes = 64, kNonceBytes = 16;
// Reports of servers about their disks and about each other.
constexpr double kReportBytes = 16384;
constexpr double kTensors = 100'000, kDimensions = 16;
constexpr double kSamples = UINT32_MAX;
constexpr double kQuantiles = 116;  // Progress.round_trip_us, WorkerStatistics.staleness_us
constexpr double kStalenessValues = 10'000, kCheckpoints = 100'000, kIncarnations = 1'000'000;
// Versions, generations and positions in the flat vector: they are multiplied by numbers of blocks and of
// bytes.
constexpr double kVersions = 1LL << 48;
constexpr double kWaitSeconds = 3600, kPollSeconds = 1e9;
constexpr double kJoules = 1e15;  // of a host

constexpr FieldLimit kLimits[] = {
    {"BestWeights.begin", kNumber, kVersions},
    {"BestWeights.evaluation"},
    {"BestWeights.incarnation"},
    {"BestWeights.values"},  // by the size of a message
    {"Energy.gpu_joules", kNumber, kJoules},
    {"Energy.host", kLine, kNameBytes},
    {"Energy.processor_joules", kNumber, kJoules},
    {"EvaluationReport.correct", kNumber, kSamples},
    {"EvaluationReport.evaluation"},
    {"EvaluationReport.incarnation"},
    {"EvaluationReport.loss_sum"},  // NaN once the weights have diverged
    {"EvaluationReport.samples", kNumber, kSamples},
    {"EvaluationReport.statistics", kCount, kTensors},
    {"GetEvaluationRequest.incarnation"},
    {"GetLeaseRequest.after"},
    {"GetLeaseRequest.incarnation"},
    {"GetLeaseRequest.wait_seconds", kNumber, kWaitSeconds},
    {"GetLeaseRequest.worker", kNumber, kWorkers - 1},
    {"GetStatusRequest.again_in_seconds", kNumber, kPollSeconds},
    // Negative if noise hides them.
    {"GradientNoise.squared_gradient"},
    {"GradientNoise.trace"},
    {"GradientNoise.updates"},
    {"HealthCheckRequest.service", kLine, kNameBytes},
    {"HeartbeatRequest.incarnation"},
    {"HeartbeatRequest.role"},
    {"HeartbeatRequest.worker", kNumber, kWorkers - 1},
    {"Hello.fingerprint"},
    {"Hello.incarnation"},
    {"Hello.job", kLine, kNameBytes},
    {"Hello.num_shards"},
    {"Hello.protocol_version"},
    {"Hello.run_id"},
    {"Hello.shard"},
    {"Hello.token", kText, kTokenBytes},
    {"Hello.worker", kNumber, kWorkers - 1},
    {"LeaveRequest.failed"},
    {"LeaveRequest.incarnation"},
    {"LeaveRequest.reason", kText, kReasonBytes},
    {"LeaveRequest.role"},
    {"LeaveRequest.stays"},
    {"LeaveRequest.worker", kNumber, kWorkers - 1},
    {"LoadWorkerStateRequest.incarnation"},
    {"LoadWorkerStateRequest.part"},
    {"LoadWorkerStateRequest.worker", kNumber, kWorkers - 1},
    {"Member.clock", kNumber, kVersions},
    {"Member.idle"},
    {"Member.incarnation"},
    {"Member.worker", kNumber, kWorkers - 1},
    // Measurements are NaN once the weights have diverged.
    {"MomentumState.exact_momentum"},
    {"MomentumState.momentum"},
    {"MomentumState.rate_factor"},
    {"MomentumState.staleness_mean"},
    {"MomentumState.total_momentum"},
    {"ProgramMetric.count"},
    {"ProgramMetric.name", kLine, kMaxMetricNameBytes},
    {"ProgramMetric.sum"},
    {"Progress.bytes_pulled"},
    {"Progress.bytes_pushed"},
    {"Progress.bytes_read"},
    // The master refuses negative times, and steps that it has not assigned.
    {"Progress.compute_seconds"},
    {"Progress.correct"},
    {"Progress.data_seconds"},
    {"Progress.lease"},
    {"Progress.lease_steps"},
    {"Progress.loss_sum"},
    {"Progress.program_metrics", kCount, kMaxProgramMetrics},
    {"Progress.pull_seconds"},
    {"Progress.push_seconds"},
    {"Progress.read_seconds"},
    {"Progress.round_trip_counts", kCount, kQuantiles},
    {"Progress.round_trip_us", kCount, kQuantiles},
    {"Progress.samples"},
    {"Progress.shared_memory_servers"},
    {"Progress.steps"},
    // A worker states its steps, and the server passes them on; the master counts only steps that it has
    // assigned.
    {"PushMark.answered_steps"},
    {"PushMark.begun_steps"},
    {"PushMark.disconnected"},
    {"PushMark.incarnation"},
    {"PushMark.settled_steps"},
    {"PushMark.waits"},
    {"PushMark.worker", kNumber, kWorkers - 1},
    {"QuorumStatistics.by_all"},
    {"QuorumStatistics.by_grace"},
    {"QuorumStatistics.by_loss"},
    {"QuorumStatistics.grace_seconds"},
    {"QuorumStatistics.merged_counts", kCount, kWorkers + 1},
    {"QuorumStatistics.merged_values", kCount, kWorkers + 1},
    {"RegisterRequest.build", kLine, kNameBytes},
    {"RegisterRequest.class_names"},
    {"RegisterRequest.device", kLine, kTensorNameBytes},
    {"RegisterRequest.host", kLine, kNameBytes},
    {"RegisterRequest.pid"},
    {"RegisterRequest.protocol_version"},
    {"RegisterRequest.role"},
    {"RegisterRequest.run_id"},
    {"RegisterRequest.tensors", kCount, kTensors},
    {"RegisterRequest.train_samples", kNumber, kSamples},
    {"RegisterRequest.version", kNumber, kVersions},
    {"RegisterServerRequest.address", kLine, kTensorNameBytes},
    {"RegisterServerRequest.build", kLine, kNameBytes},
    {"RegisterServerRequest.cannot_restore"},
    {"RegisterServerRequest.epoch", kNumber, kVersions},
    {"RegisterServerRequest.failure", kText, kReasonBytes},
    {"RegisterServerRequest.index", kNumber, kWorkers - 1},
    {"RegisterServerRequest.job_fingerprint"},
    {"RegisterServerRequest.leaving"},
    {"RegisterServerRequest.num_servers", kNumber, kWorkers},
    {"RegisterServerRequest.protocol_version"},
    {"RegisterServerRequest.resumed_checkpoint"},
    {"RegisterServerRequest.server_instance"},
    {"RegisterServerRequest.version", kNumber, kVersions},
    {"Roster.from_version", kNumber, kVersions},
    {"Roster.members", kCount, kWorkers},
    {"Run.id"},
    {"Run.job", kLine, kNameBytes},
    {"Run.master", kLine, kTensorNameBytes},
    {"Run.token_key", kText, kTokenBytes},
    {"SaveWorkerStateRequest.checkpoint"},
    {"SaveWorkerStateRequest.incarnation"},
    {"SaveWorkerStateRequest.worker", kNumber, kWorkers - 1},
    {"SavedShard.begun_steps", kCount, kIncarnations},
    {"SavedShard.checkpoint", kNumber, kVersions},
    {"SavedShard.file", kFile},
    {"SavedShard.incarnations", kCount, kIncarnations},
    {"SavedShard.settled_steps", kCount, kIncarnations},
    {"SavedShard.version", kNumber, kVersions},
    {"ShardCommand.Standby.address", kLine, kTensorNameBytes},
    {"ShardCommand.Standby.epoch", kNumber, kVersions},
    {"ShardCommand.Standby.keeps_epoch", kNumber, kVersions},
    {"ShardCommand.checkpoint", kNumber, kVersions},
    {"ShardCommand.checkpoint_version", kNumber, kVersions},
    {"ShardCommand.failure", kText, 4 * kReportBytes},
    {"ShardCommand.generation", kNumber, kVersions},
    {"ShardCommand.plateau_factor", kNumber, 1},
    {"ShardCommand.rosters", kCount, kWorkers},
    {"ShardCommand.server_instance"},
    {"ShardCommand.step_seconds", kNumber, kPollSeconds},
    {"ShardCommand.stop"},
    {"ShardCommand.total_samples"},
    {"ShardCommand.training"},
    {"ShardCommand.without_statistics"},
    {"ShardReport.bytes_pulled"},
    {"ShardReport.bytes_pushed"},
    {"ShardReport.generation", kNumber, kVersions},
    {"ShardReport.marks", kCount, kWorkers},
    {"ShardReport.non_finite_version", kNumber, kVersions},
    {"ShardReport.run_id"},
    {"ShardReport.samples"},
    {"ShardReport.save_error", kText, kReportBytes},
    {"ShardReport.saved", kCount, kCheckpoints},
    {"ShardReport.server_instance"},
    {"ShardReport.shard", kNumber, kWorkers - 1},
    {"ShardReport.version", kNumber, kVersions},
    {"ShardReport.without_statistics"},
    {"ShardReport.workers", kCount, kWorkers},
    {"SharedMemory.boot_id", kLine, kBootIdBytes},
    {"SharedMemory.bytes"},
    {"SharedMemory.descriptor_number"},
    {"SharedMemory.nonce", kText, kNonceBytes},
    {"SharedMemory.process"},
    {"SnapshotRequest.fingerprint"},
    {"SnapshotRequest.run_id"},
    {"StandbyHello.epoch", kNumber, kVersions},
    {"StandbyHello.fingerprint"},
    {"StandbyHello.num_shards", kNumber, kWorkers},
    {"StandbyHello.protocol_version"},
    {"StandbyHello.run_id"},
    {"StandbyHello.shard", kNumber, kWorkers - 1},
    {"Statistic.name", kLine, kTensorNameBytes},
    {"Statistic.values"},  // by the size of a message
    {"StopRequest.now"},
    {"StopRequest.reason", kText, kReasonBytes},
    {"TensorInfo.name", kLine, kTensorNameBytes},
    {"TensorInfo.shape", kCount, kDimensions},
    {"WorkerStatePart.Values.begin", kNumber, kVersions},
    {"WorkerStatePart.Values.values"},  // by the size of a message
    {"WorkerStatePart.name", kLine, kTensorNameBytes},
    {"WorkerStatePart.number"},
    {"WorkerStatistics.applied"},
    {"WorkerStatistics.duplicate"},
    {"WorkerStatistics.gap_count"},
    // Distances are NaN once the weights have diverged.
    {"WorkerStatistics.gap_max"},
    {"WorkerStatistics.gap_sum"},
    {"WorkerStatistics.late"},
    {"WorkerStatistics.non_finite"},
    {"WorkerStatistics.non_finite_in_a_row"},
    {"WorkerStatistics.share_sum"},
    {"WorkerStatistics.split"},
    {"WorkerStatistics.staleness_counts", kCount, kStalenessValues},
    {"WorkerStatistics.staleness_seconds_max", kNumber, kPollSeconds},
    {"WorkerStatistics.staleness_us", kCount, kQuantiles},
    {"WorkerStatistics.staleness_us_counts", kCount, kQuantiles},
    {"WorkerStatistics.staleness_values", kCount, kStalenessValues},
    {"WorkerStatistics.waiting"},
    {"WorkerStatistics.worker", kNumber, kWorkers - 1},
};

// Returns "RegisterRequest.host".
absl::string_view NameOf(const FieldDescriptor& field) {
  absl::string_view name = field.full_name();
  absl::ConsumePrefix(&name, "catchment.v1.");
  absl::ConsumePrefix(&name, "grpc.health.v1.");
  return name;
}

// Returns null for a field without a limit.
const FieldLimit* FindLimit(const FieldDescriptor& field) {
  static const auto* const limits = [] {
    auto* const by_name = new std::unordered_map<std::string, const FieldLimit*>;
    for (const FieldLimit& limit : kLimits) {
      if (limit.kind != kAny) by_name->emplace(limit.field, &limit);
    }
    return by_name;
  }();
  const auto found = limits->find(std::string(NameOf(field)));
  return found == limits->end() ? nullptr : found->second;
}

absl::Status TooMuch(const FieldLimit& limit, absl::string_view has) {
  return absl::InvalidArgumentError(
      absl::StrCat(limit.field, " ", has, "; at most ", static_cast<uint64_t>(limit.most), " is accepted"));
}

absl::Status CheckNumber(const FieldLimit& limit, double value) {
  if (value >= 0 && value <= limit.most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(limit.field, " is ", value, "; accepted are 0 to ", limit.most));
}

absl::Status CheckText(const FieldLimit& limit, absl::string_view text) {
  if (limit.kind == kFile) {
    if (IsFileName(text)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(limit.field, " is not the name of a file in a directory"));
  }
  if (text.size() > limit.most) return TooMuch(limit, absl::StrCat("has ", text.size(), " bytes"));
  if (limit.kind != kLine || OneLine(text) == text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(limit.field, " has control characters"));
}

absl::Status CheckSingular(const FieldLimit& limit, const Message& message, const FieldDescriptor& field) {
  const Reflection& values = *message.GetReflection();
  std::string scratch;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckText(limit, values.GetStringReference(message, &field, &scratch));
    case FieldDescriptor::CPPTYPE_UINT32:
      return CheckNumber(limit, values.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return CheckNumber(limit, static_cast<double>(values.GetUInt64(message, &field)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckNumber(limit, values.GetDouble(message, &field));
    default:
      return absl::InternalError(absl::StrCat(limit.field, " has a limit that its type cannot have"));
  }
}

// A field that is looked at: it has a limit, or is a message, whose fields may have one.
struct Check {
  const FieldDescriptor* field;
  const FieldLimit* limit;  // null: none
};

// A report of a server has thousands of messages of one type, so the names of fields are looked up once.
const std::vector<Check>& ChecksOf(const Descriptor& message) {
  thread_local std::unordered_map<const Descriptor*, std::vector<Check>> all;
  const auto [found, is_new] = all.try_emplace(&message);
  for (int i = 0; is_new && i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const FieldLimit* const limit = FindLimit(field);
    if (limit != nullptr || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      found->second.push_back({&field, limit});
  }
  return found->second;
}

absl::Status CheckField(const Message& message, const Check& check) {
  const Reflection& values = *message.GetReflection();
  const FieldDescriptor& field = *check.field;
  const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (!field.is_repeated()) {
    if (!values.HasField(message, &field)) return absl::OkStatus();
    return is_message ? CheckLimits(values.GetMessage(message, &field))
                      : CheckSingular(*check.limit, message, field);
  }
  const int count = values.FieldSize(message, &field);
  if (check.limit != nullptr && count > check.limit->most)
    return TooMuch(*check.limit, absl::StrCat("has ", count, " elements"));
  for (int i = 0; is_message && i < count; ++i) {
    RETURN_IF_ERROR(CheckLimits(values.GetRepeatedMessage(message, &field, i)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const FieldLimit> FieldLimits() { return kLimits; }

absl::Status CheckLimits(const Message& message) {
  for (const Check& check : ChecksOf(*message.GetDescriptor())) {
    RETURN_IF_ERROR(CheckField(message, check));
  }
  return absl::OkStatus();
}

}  // namespace catchment
