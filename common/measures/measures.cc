#include "common/measures/measures.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/measures/measure_readers.h"
#include "common/measures/noise_scale.h"
#include "common/measures/phrases.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;
using Status = v1::JobStatus;
using v1::ShardReport;

// ------------------------------------------------------------------------------------------------ the job

// Each of these templates reads a value by `get`, a member of what it names.
template <auto get>
Json Of(const JobReading& job) {
  return std::invoke(get, job.status);
}
template <auto known, auto get>
Json If(const JobReading& job) {
  return std::invoke(known, job.status) ? Of<get>(job) : Json();
}
// Returns null for 0 and for an empty text.
template <auto get>
Json IfAny(const JobReading& job) {
  const auto value = std::invoke(get, job.status);
  return value == decltype(value)() ? Json() : Json(value);
}
template <auto get>
Json OfSettings(const JobReading& job) {
  return std::invoke(get, job.status.settings());
}
template <auto get>
Json OfFacts(const JobReading& job) {
  return Known(std::invoke(get, job.facts));
}
template <auto get>
Json OfQuorum(const JobReading& job) {
  return job.quorum ? Json(std::invoke(get, *job.quorum)) : Json();
}
template <auto get>
Json OfNoise(const JobReading& job) {
  return job.noise ? Json(std::invoke(get, *job.noise)) : Json();
}

bool Trained(const Status& s) { return s.samples() > 0; }
bool Classified(const Status& s) { return Trained(s) && s.has_accuracy(); }
bool Tested(const Status& s) { return s.test_samples() > 0; }
bool TestClassified(const Status& s) { return Tested(s) && s.has_accuracy(); }
bool HasBest(const Status& s) { return s.best_evaluation() > 0; }
bool BestClassified(const Status& s) { return HasBest(s) && s.has_accuracy(); }
bool Pushed(const Status& s) { return s.pushes_applied() > 0; }
bool HasRate(const Status& s) { return s.phase() == Status::TRAINING && s.samples_per_second() > 0; }

Json Phase(const JobReading& job) { return Status::Phase_Name(job.status.phase()); }
Json Preset(const JobReading& job) { return job.status.settings().algorithm().preset(); }

Json Percent(const JobReading& job) {
  const double total = static_cast<double>(job.status.total_samples());
  return total > 0 ? Json(100 * static_cast<double>(job.status.samples()) / total) : Json();
}

Json TotalEpochs(const JobReading& job) {
  const Status& s = job.status;
  if (s.total_samples() == 0 || s.samples() == 0) return Json();
  return s.epochs() * static_cast<double>(s.total_samples()) / static_cast<double>(s.samples());
}

Json RegisteredServers(const JobReading& job) {
  return std::count_if(job.status.servers().begin(), job.status.servers().end(),
                       [](const v1::ServerStatus& server) { return !server.address().empty(); });
}

Json MeanRate(const JobReading& job) {
  const double seconds = job.status.wall_seconds();
  return seconds > 0 ? static_cast<double>(job.status.samples()) / seconds : 0.0;
}

Json StalenessPerWorker(const JobReading& job) {
  std::map<uint32_t, StalenessDistribution> workers;
  for (const ShardReport& shard : job.status.shards()) {
    for (const v1::WorkerStatistics& worker : shard.workers()) workers[worker.worker()].Add(worker);
  }
  Json list = Json::array();
  for (const auto& [worker, staleness] : workers) {
    list.push_back({{"worker", worker},
                    {"mean", staleness.mean()},
                    {"p50", staleness.quantile(0.5)},
                    {"p99", staleness.quantile(0.99)},
                    {"max", staleness.max()}});
  }
  return list;
}

template <Json (*read)(const ShardReport&)>
Json AtFirstShard(const JobReading& job) {
  return job.status.shards_size() > 0 ? read(job.status.shards(0)) : Json();
}

constexpr unsigned kAtEnd = kInSummary | kInStatus;
constexpr char kOfTraining[] = "mean over the last seconds";

constexpr Measure<JobReading> kOfJob[] = {
    {"job", kAtEnd, "", "the job's name", Of<&Status::job>},
    {"build", kInSummary, "", "the version of the master's program, with its commit",
     [](const JobReading&) -> Json { return BuildVersion(); }},
    {"algorithm", kInSummary, "", "the job's `algorithm.preset`", Preset},
    {"preset", kInStatus, "", "the job's `algorithm.preset`", Preset},
    {"phase", kAtEnd, "",
     "`WAITING`, `TRAINING`, `FINISHING`, `DONE`, `STOPPED` before its budget was spent, or `FAILED`", Phase},
    {"reason", kAtEnd, "", "what the job waits for, or why it was stopped or failed", Of<&Status::reason>},
    {"servers", kInSummary, "", "servers of the job", Of<&Status::servers_size>,
     "catchment_servers_expected"},
    {"servers_registered", kInStatus, "", "servers that have registered", RegisteredServers,
     "catchment_servers"},
    {"workers", kInLines, "", "workers that are members", Of<&Status::workers_size>, "catchment_workers"},
    {"workers", kInSummary, "", "the job's `workers`", OfSettings<&v1::Job::workers>},
    {"planned_workers", kInStatus, "", "the job's `workers`", OfSettings<&v1::Job::workers>,
     "catchment_workers_expected"},
    {"evaluators", kInStatus, "", "evaluators that are members", Of<&Status::evaluators>,
     "catchment_evaluators"},
    {"device", kInSummary, "", "the workers' devices",
     [](const JobReading& job) -> Json { return absl::StrJoin(job.facts.devices, "; "); }},
    {"train_samples", kInSummary, "samples", "the size of the training set", Of<&Status::train_samples>},
    {"test_samples", kAtEnd, "samples", "the size of the test set; 0: it was not scored",
     Of<&Status::test_samples>},
    {"data_checksum", kInSummary, "",
     "a checksum of the samples that the first worker loaded, which shows whether two runs had the same "
     "data; for images in folders it covers only their number and classes",
     [](const JobReading& job) -> Json {
       return job.status.data_checksum() > 0 ? Json(FormatId(job.status.data_checksum())) : Json();
     }},
    {"samples", kInAll, "samples", "trained: those in updates, over all workers", Of<&Status::samples>,
     "catchment_samples_total"},
    {"total_samples", kInStatus, "samples", "the budget; null if it is not in samples",
     IfAny<&Status::total_samples>, "catchment_samples_budget"},
    {"percent", kInStatus, "%", "the part of the budget that is trained", Percent},
    {"epochs", kInAll, "", "epochs trained, over all workers", Of<&Status::epochs>, "catchment_epochs"},
    {"total_epochs", kInStatus, "", "the budget", TotalEpochs},
    {"updates", kInAll, "updates",
     "updates of the center, at server 0; with `fragments`, how often all of them have been updated",
     Of<&Status::updates>, "catchment_updates_total"},
    {"repeated_samples", kInAll, "samples",
     "computed again although some blocks already included them: a contribution of a lost worker had reached "
     "only some servers, or was in flight when the checkpoint was taken from which the job was resumed",
     Of<&Status::repeated_samples>, "catchment_repeated_samples_total", "recovery/repeated_samples"},
    {"recoveries", kInAll, "",
     "how often the job continued after the loss of a server or the master, from a checkpoint or a standby",
     Of<&Status::recoveries>, "catchment_recoveries_total", "recovery/recoveries"},
    {"updates_computed_again", kInAll, "updates", "updates lost by going back to a checkpoint",
     Of<&Status::updates_computed_again>, "catchment_updates_computed_again_total",
     "recovery/updates_computed_again"},
    {"wall_seconds", kInAll, "s", "time of training", Of<&Status::wall_seconds>, "catchment_wall_seconds"},
    {"seconds_left", kInStatus, "s", "until the budget is spent, at the current rate",
     If<HasRate, &Status::seconds_left>, "catchment_seconds_left"},
    {"samples_per_second", kInLines, "samples/s", "over the last seconds", Of<&Status::samples_per_second>,
     "catchment_samples_per_second", "rate/samples_per_second"},
    {"samples_per_second", kInSummary, "samples/s", "over the time of training", MeanRate},
    {"samples_per_second", kInStatus, "samples/s",
     "since the previous reading, or, in a single one, over the last seconds",
     [](const JobReading& job) { return Known(SamplesPerSecond(job.status, job.before)); }},
    {"train_loss", kInLines | kInStatus, "", kOfTraining, If<Trained, &Status::train_loss>,
     "catchment_train_loss", "train/loss"},
    {"train_accuracy", kInLines | kInStatus, "ratio", kOfTraining, If<Classified, &Status::train_accuracy>,
     "catchment_train_accuracy_ratio", "train/accuracy"},
    {"test_loss", kInAll, "", "of the last evaluation, over the whole test set",
     If<Tested, &Status::test_loss>, "catchment_test_loss", "test/loss"},
    {"test_accuracy", kInAll, "ratio", "of the last evaluation; null for real-valued targets",
     If<TestClassified, &Status::test_accuracy>, "catchment_test_accuracy_ratio", "test/accuracy"},
    {"tested_at_samples", kInAll, "samples", "trained by the weights of the last evaluation",
     If<Tested, &Status::tested_at_samples>, "catchment_tested_at_samples"},
    {"tested_at_seconds", kInAll, "s", "time of training of the weights of the last evaluation",
     If<Tested, &Status::tested_at_seconds>},
    {"best_evaluation", kInAll, "", "the number of the best evaluation", IfAny<&Status::best_evaluation>,
     "catchment_best_evaluation", "best/evaluation"},
    {"best_test_loss", kInAll, "", "of the best evaluation", If<HasBest, &Status::best_test_loss>,
     "catchment_best_test_loss", "best/test_loss"},
    {"best_test_accuracy", kInAll, "ratio", "of the best evaluation",
     If<BestClassified, &Status::best_test_accuracy>, "catchment_best_test_accuracy_ratio",
     "best/test_accuracy"},
    {"best_at_samples", kInAll, "samples", "trained by the weights of the best evaluation",
     If<HasBest, &Status::best_at_samples>, "catchment_best_at_samples", "best/at_samples"},
    {"evaluations_since_best", kInAll, "", "evaluations since the best one",
     Of<&Status::evaluations_since_best>, "catchment_evaluations_since_best", "best/evaluations_since"},
    {"best_weights", kInSummary, "", "the evaluation of `model-best.safetensors`; null without that file",
     [](const JobReading& job) -> Json {
       return job.facts.best_weights > 0 ? Json(job.facts.best_weights) : Json();
     }},
    {"ended_early", kInAll, "", "why training ended at a target or because of patience; null if it did not",
     IfAny<&Status::ended_early>},
    {"learning_rate", kInLines | kInStatus, "",
     "of the next update, adjusted for PLATEAU, the number of workers and staleness-aware momentum",
     Of<&Status::learning_rate>, "catchment_learning_rate", "optimizer/learning_rate"},
    {"plateau_factor", kInAll, "", "with schedule PLATEAU: the factor of the learning rate",
     If<&Status::has_plateau_factor, &Status::plateau_factor>, "catchment_plateau_factor",
     "optimizer/plateau_factor"},
    {"momentum", kInAll, "",
     "with `open_loop_momentum` or `closed_loop_momentum`: the last momentum that it set, at the first block "
     "of server 0",
     AtFirstShard<Momentum>, "catchment_momentum", "optimizer/momentum"},
    {"implicit_momentum", kInAll, "",
     "the momentum that asynchrony adds: tau_mean / (1 + tau_mean), or the measured total minus `momentum`",
     AtFirstShard<ImplicitMomentum>, "catchment_implicit_momentum", "optimizer/implicit_momentum"},
    {"noise_scale", kInAll, "samples", "the gradient noise scale",
     [](const JobReading& job) { return Known(job.noise ? NoiseScale(*job.noise) : std::nullopt); },
     "catchment_noise_scale", "gradient/noise_scale"},
    {"noise_updates", kInAll, "updates", "updates in which the noise scale was measured",
     OfNoise<&v1::GradientNoise::updates>},
    {"noise_trace", kInAll, "", "the noise scale's numerator", OfNoise<&v1::GradientNoise::trace>},
    {"noise_squared_gradient", kInAll, "", "the noise scale's denominator",
     OfNoise<&v1::GradientNoise::squared_gradient>},
    {"staleness_mean", kInAll, "updates",
     "updates of the center between a worker's fetch and the application of the contribution that it "
     "computed",
     If<Pushed, &Status::staleness_mean>, "", "staleness/mean"},
    {"staleness_p50", kInAll, "updates", "its median", If<Pushed, &Status::staleness_p50>, "",
     "staleness/p50"},
    {"staleness_p99", kInAll, "updates", "its 99th percentile", If<Pushed, &Status::staleness_p99>, "",
     "staleness/p99"},
    {"staleness_max", kInAll, "updates", "its maximum", If<Pushed, &Status::staleness_max>, "",
     "staleness/max"},
    {"staleness_per_worker", kInSummary, "", "the same for each worker, in a list", StalenessPerWorker},
    {"staleness_counts", kInSummary, "",
     "the number of pushes with each staleness, over all servers: `[[staleness, pushes], ...]`",
     [](const JobReading& job) -> Json { return job.pushes.staleness.counts(); },
     "catchment_staleness_updates", "staleness"},
    {"staleness_seconds_p50", kInAll, "s",
     "from sending the weights with which a contribution was computed to its application, to within 10 %; "
     "with groups to the arrival of the last contribution to the update",
     StalenessSeconds<50>},
    {"staleness_seconds_p90", kInAll, "s", "its 90th percentile, to within 10 %", StalenessSeconds<90>},
    {"staleness_seconds_max", kInAll, "s", "its maximum", OfPushes<&PushTotals::SecondsMax>},
    {"gap_mean", kInLines, "", "the [gap](#the-gap), over the pushes since the previous line",
     OfPushes<&PushTotals::GapMean>},
    {"gap_mean", kAtEnd, "",
     "the [gap](#the-gap): the root mean square, over the weights, of the change of the center in the "
     "meantime",
     OfPushes<&PushTotals::GapMean>},
    {"gap_max", kInAll, "", "the largest gap", OfPushes<&PushTotals::GapMax>},
    {"pushes_applied", kInAll, "pushes",
     "contributions in updates, at server 0, like the next ones; with `fragments`, each contribution to a "
     "fragment counts",
     Of<&Status::pushes_applied>, "catchment_pushes_total{fate=applied}"},
    {"pushes_late", kInAll, "pushes",
     "contributions whose update was made without them, or that were as old as `staleness_limit`",
     Of<&Status::pushes_late>, "catchment_pushes_total{fate=late}"},
    {"pushes_split", kInAll, "pushes",
     "those of `pushes_applied` that were too late for the updates of some blocks", Of<&Status::pushes_split>,
     "catchment_pushes_split_total"},
    {"pushes_non_finite", kInAll, "pushes",
     "contributions with a NaN or a magnitude of 2^63 or more, which are refused",
     Of<&Status::pushes_non_finite>, "catchment_pushes_total{fate=non_finite}"},
    {"pushes_duplicate", kInAll, "pushes", "blocks of pushes that arrived twice and were applied once",
     Of<&Status::pushes_duplicate>, "catchment_pushes_total{fate=duplicate}"},
    {"pushes_waiting", kInAll, "pushes",
     "contributions that were answered, but are not in an update yet: it needs more of them, or "
     "`emulated_delay` has not passed",
     OfPushes<&PushTotals::waiting>},
    {"closed_by_all", kInAll, "updates",
     "with `consistency.quorum`: updates of single blocks, over all servers, for which all active workers' "
     "contributions had arrived",
     OfQuorum<&QuorumTotal::by_all>, "catchment_quorum_updates_total{closed_by=all}", "quorum/closed_by_all"},
    {"closed_by_grace", kInAll, "updates", "the same, for which the grace had passed",
     OfQuorum<&QuorumTotal::by_grace>, "catchment_quorum_updates_total{closed_by=grace}",
     "quorum/closed_by_grace"},
    {"closed_by_loss", kInAll, "updates",
     "the same, for which the last missing workers were lost, had left, or had no more work",
     OfQuorum<&QuorumTotal::by_loss>, "catchment_quorum_updates_total{closed_by=loss}",
     "quorum/closed_by_loss"},
    {"grace_seconds", kInSummary, "s", "from the arrival of the quorum to the update, over all updates",
     OfQuorum<&QuorumTotal::grace_seconds>, "catchment_quorum_grace_seconds_total"},
    {"grace_seconds_mean", kInAll, "s", "its mean", OfQuorum<&QuorumTotal::grace_seconds_mean>},
    {"merged_mean", kInAll, "", "the mean number of contributions in an update of a block",
     OfQuorum<&QuorumTotal::merged_mean>, "", "quorum/merged"},
    {"merged_counts", kInSummary, "",
     "the number of updates with each number of contributions: `[[contributions, updates], ...]`",
     OfQuorum<&QuorumTotal::merged>, "catchment_quorum_contributions"},
    {"bytes_pushed", kInAll, "bytes", "payload of contributions, over all servers", Of<&Status::bytes_pushed>,
     "catchment_pushed_bytes_total", "bytes/pushed"},
    {"bytes_pulled", kInAll, "bytes", "payload of weights, over all servers", Of<&Status::bytes_pulled>,
     "catchment_pulled_bytes_total", "bytes/pulled"},
    {"busiest_second_bytes", kInSummary, "bytes",
     "of a simulation: the most that all workers together began to send within a second, "
     "without the last tenth of the budget",
     OfFacts<&RunFacts::busiest_second_bytes>},
    {"goodput", kInSummary, "ratio",
     "of a simulation: seconds of local steps whose contributions are in updates, over workers times "
     "`wall_seconds`",
     OfFacts<&RunFacts::goodput>},
    {"uptime", kInSummary, "ratio",
     "of a simulation: the part of `wall_seconds` in which any worker computed", OfFacts<&RunFacts::uptime>},
    {"computed_samples", kInSummary, "samples",
     "computed by workers since the last start of the servers, as all pushes above and times below",
     [](const JobReading& job) -> Json { return job.facts.computed_samples; }},
    {"compute_seconds", kInSummary, "s", "time of all workers' training threads that they computed",
     Of<&Status::compute_seconds>, "catchment_phase_seconds_total{phase=compute}"},
    {"push_seconds", kInSummary, "s",
     "blocked until the last block of a contribution was sent; if no weights are returned, until all were "
     "answered",
     Of<&Status::push_seconds>, "catchment_phase_seconds_total{phase=push}"},
    {"pull_seconds", kInSummary, "s",
     "blocked from then until the weights or the elastic difference had arrived; with `sync` that includes "
     "the wait for slower workers",
     Of<&Status::pull_seconds>, "catchment_phase_seconds_total{phase=pull}"},
    {"data_seconds", kInSummary, "s", "blocked until a minibatch was loaded", Of<&Status::data_seconds>,
     "catchment_phase_seconds_total{phase=data}"},
    {"compute_share", kInStatus, "ratio", "of the workers' time: computing", Share<&Work::compute>},
    {"push_share", kInStatus, "ratio", "of the workers' time: pushing", Share<&Work::push>},
    {"pull_share", kInStatus, "ratio", "of the workers' time: pulling", Share<&Work::pull>},
    {"data_share", kInStatus, "ratio", "of the workers' time: waiting for a minibatch", Share<&Work::data>},
    {"read_threads", kInStatus, "", "how many of a worker's loader threads were busy", Share<&Work::read>},
    {"bytes_read", kInAll, "bytes",
     "of samples that were read from files during training: images, and rows of packed shards, which may "
     "have been in memory",
     Of<&Status::bytes_read>, "catchment_read_bytes_total"},
    {"read_seconds", kInAll, "s",
     "in which the loaders' threads read, decoded and augmented samples, summed over the threads",
     Of<&Status::read_seconds>, "catchment_read_seconds_total"},
    {"round_trip_p50_us", kInAll, "us",
     "from the time when a whole contribution is ready to be sent until all weights or differences have "
     "arrived, to within 10 %, without communication during the backward pass; null if pushes and pulls are "
     "separate",
     IfAny<&Status::round_trip_p50_us>, "catchment_round_trip_seconds{quantile=0.5}",
     "rate/round_trip_p50_us"},
    {"round_trip_p99_us", kInAll, "us", "its 99th percentile", IfAny<&Status::round_trip_p99_us>,
     "catchment_round_trip_seconds{quantile=0.99}", "rate/round_trip_p99_us"},
    {"processor_joules", kInAll, "J",
     "energy that the processors of the job's hosts used while its processes ran",
     If<&Status::has_processor_joules, &Status::processor_joules>, "catchment_processor_joules_total",
     "energy/processor_joules"},
    {"gpu_joules", kInAll, "J", "the same for the GPUs of hosts of CUDA workers",
     If<&Status::has_gpu_joules, &Status::gpu_joules>, "catchment_gpu_joules_total", "energy/gpu_joules"},
    {"energy_hosts", kInAll, "", "the number of hosts that could read one of them",
     IfAny<&Status::energy_hosts>, "catchment_energy_hosts", "energy/hosts"},
    {"last_checkpoint", kInSummary, "", "the number of the last complete checkpoint; 0: none",
     Of<&Status::last_checkpoint>, "catchment_last_checkpoint"},
    {"last_checkpoint", kInStatus, "", "the number of the last complete checkpoint; null: none",
     IfAny<&Status::last_checkpoint>},
    {"insecure", kInStatus, "", "connections over a network are in clear text (`--insecure`)",
     Of<&Status::insecure>},
};

// ------------------------------------------------------------------------------------------------ in words

constexpr char kStaleness[] =
    "mean {staleness_mean}|p50 {staleness_p50}|p99 {staleness_p99}|max {staleness_max} updates";
constexpr char kOutcome[] = "{outcome}|{reason}|{ended_early}";
constexpr char kRecovered[] =
    "{recoveries:time}|{updates_computed_again:update} computed again|{repeated_samples:sample} repeated";
constexpr char kEnergy[] =
    "{processor_joules} used by processors|{gpu_joules} used by GPUs|on {energy_hosts:host}";

// status_text.cc adds what is not a measure.
constexpr PhraseRow kStatusRows[] = {
    {"progress",
     "{percent}|{samples} of {total_samples} samples|epoch {epochs} of {total_epochs}|{updates:update}",
     true},
    {"time", "{wall_seconds} trained|{samples_per_second} samples/s|{seconds_left} left"},
    {"training", "loss {train_loss}|accuracy {train_accuracy}|over the last seconds"},
    {"test",
     "loss {test_loss}|accuracy {test_accuracy}|of the weights at {tested_at_samples} samples "
     "({tested_at_seconds})"},
    {"best",
     "evaluation {best_evaluation}|loss {best_test_loss}|accuracy {best_test_accuracy}|after "
     "{best_at_samples:sample}|{evaluations_since_best:evaluation} ago",
     true},
    {"staleness", kStaleness},
    {"quorum", "{merged_mean} contributions in an update; {quorum_ends}"},
    {"noise scale", "{noise_scale:sample}, measured in {noise_updates:update}"},
    {"optimizer",
     "learning rate {learning_rate}|factor of the plateau {plateau_factor}|momentum {momentum}|"
     "{implicit_momentum} from asynchrony",
     true},
    {"recovered", kRecovered, true},
    {"on the wire",
     "{bytes_pushed} pushed|{bytes_pulled} pulled|; round trip p50 {round_trip_p50_us}|p99 "
     "{round_trip_p99_us}",
     true},
    {"in memory", "{in_memory}"},
    {"data", "{bytes_read} read|; {read_threads} of {loader_threads:loader thread} of a worker are busy",
     true},
    {"energy", kEnergy},
    {"checkpoint", "{checkpoint}"},
    {"security", "{security}"},
};

// summary.cc adds the outcome.
constexpr PhraseRow kResultRows[] = {
    {"test",
     "accuracy {test_accuracy}|loss {test_loss}|best {best_test_accuracy} after {best_at_samples:sample}"},
    {"outcome", kOutcome},
    {"trained", "{epochs} epochs|{samples:sample}|{updates:update}"},
    {"recovered", kRecovered, true},
    {"time", "{wall_seconds}|{samples_per_second} samples/s"},
    {"staleness", kStaleness, true},
};

// summary.cc adds what is not a measure.
constexpr PhraseRow kSummaryRows[] = {
    {"test accuracy", "{test_accuracy}"},
    {"test loss", "{test_loss}"},
    {"outcome", kOutcome},
    {"algorithm", "{algorithm}"},
    {"processes", "{servers:server}|{workers:worker}"},
    {"device", "{device}"},
    {"trained", "{epochs} epochs|{samples:sample}|{updates:update}"},
    {"recovered", kRecovered, true},
    {"time", "{wall_seconds}|{samples_per_second} samples/s"},
    {"workers' time", "{time_split}"},
    {"round trip", "p50 {round_trip_p50_us}|p99 {round_trip_p99_us}"},
    {"best evaluation",
     "{best_evaluation}|test accuracy {best_test_accuracy}|test loss {best_test_loss}|after "
     "{best_at_samples:sample}"},
    {"staleness", kStaleness, true},
    {"in time", "p50 {staleness_seconds_p50}|p90 {staleness_seconds_p90}|max {staleness_seconds_max}"},
    {"gap", "mean {gap_mean}|max {gap_max}", true},
    {"momentum", "{momentum} set|{implicit_momentum} from asynchrony"},
    {"noise scale", "{noise_scale:sample}"},
    {"pushes",
     "{pushes_applied} applied|{pushes_waiting} waiting|{pushes_late} late|{pushes_non_finite} not finite|"
     "{pushes_duplicate} duplicate|{pushes_split} late in part"},
    {"quorum",
     "{merged_mean} contributions in an update|closed by all {closed_by_all}|by the grace "
     "{closed_by_grace}|by a loss {closed_by_loss}"},
    {"on the wire", "{bytes_pushed} pushed|{bytes_pulled} pulled"},
    {"energy", kEnergy},
};

}  // namespace

JobReading::JobReading(const Status& status, const Status* before, const RunFacts& facts)
    : status(status),
      before(before),
      facts(facts),
      pushes(TotalPushes(status)),
      quorum(TotalQuorum(status)),
      noise(TotalNoise(status)),
      work(WorkOf(status, before)) {}

absl::Span<const Measure<JobReading>> JobMeasures() { return kOfJob; }
absl::Span<const PhraseRow> StatusRows() { return kStatusRows; }
absl::Span<const PhraseRow> ResultRows() { return kResultRows; }
absl::Span<const PhraseRow> SummaryRows() { return kSummaryRows; }

std::string UnitOf(const std::string& key) {
  const auto* const found = std::find_if(std::begin(kOfJob), std::end(kOfJob),
                                         [&key](const auto& measure) { return measure.key == key; });
  return found == std::end(kOfJob) ? "" : found->unit;
}

}  // namespace catchment
