#include "cli/advise/throughput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/codec/codec.h"
#include "common/job/algorithm_facts.h"
#include "common/random.h"
#include "common/rounding.h"
#include "simulation/simulated_server.h"

namespace catchment {
namespace {

// Draws of the computing between two contributions, fewer where it has many steps: their spread is then small.
constexpr int64_t kDraws = 1 << 21;
constexpr int64_t kMostDraws = 1 << 16;
constexpr int64_t kFewestDraws = 1 << 10;
// Points of the integral of an order statistic's distribution, on a logarithmic scale.
constexpr int kPoints = 500;
// Workers whose answers leave one after another are taken together in so many sets.
constexpr int kSets = 16;
constexpr int kBisections = 60;

std::vector<double> Draw(const Distribution& step, int64_t steps) {
  if (step.kind == Distribution::kConstant) return {static_cast<double>(steps) * step.mean};
  Random random(1);
  std::vector<double> times(std::clamp(kDraws / steps, kFewestDraws, kMostDraws));
  double sum = 0;
  for (double& time : times) {
    for (int64_t i = 0; i < steps; ++i) time += step.Sample(&random);
    sum += time;
  }
  const double scale = step.mean * static_cast<double>(steps * times.size()) / sum;
  for (double& time : times) time *= scale;
  std::sort(times.begin(), times.end());
  return times;
}

// The distribution of the number of workers that have not finished, cut above `most`.
class Unfinished {
 public:
  explicit Unfinished(int most) : probabilities_(most + 1, 0.0) { probabilities_[0] = 1; }

  // Adds workers that have each not finished with probability `late`.
  void Add(int workers, double late) {
    const int most = static_cast<int>(probabilities_.size()) - 1;
    std::vector<double> sum(probabilities_.size(), 0.0);
    double of_class = std::pow(1 - late, workers);  // of j = 0
    for (int j = 0; j <= std::min(most, workers); ++j) {
      if (j > 0) of_class = Binomial(workers, j, late);
      for (int i = 0; i + j <= most; ++i) sum[i + j] += probabilities_[i] * of_class;
    }
    probabilities_ = std::move(sum);
  }
  // Returns the probability of at most `most`.
  double Probability() const {
    double sum = 0;
    for (double probability : probabilities_) sum += probability;
    return sum;
  }

 private:
  static double Binomial(int n, int j, double p) {
    if (p <= 0) return 0;
    if (p >= 1) return j == n ? 1 : 0;
    return std::exp(std::lgamma(n + 1) - std::lgamma(j + 1) - std::lgamma(n - j + 1) + j * std::log(p) +
                    (n - j) * std::log1p(-p));
  }

  std::vector<double> probabilities_;
};

}  // namespace

Load LoadOf(const v1::Job& job, int64_t parameters, double exposed) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  const v1::Consistency& consistency = job.algorithm().consistency();
  Load load;
  load.steps = PushPeriod(contribution);
  load.sent = static_cast<double>(Codec::ForPush(job.compression()).PayloadBytes(parameters));
  load.received = static_cast<double>(Codec::ForPull(job.compression()).PayloadBytes(parameters));
  if (contribution.has_gradient()) {
    load.received *= static_cast<double>(load.steps) / contribution.gradient().fetch_period();
    load.exposed = exposed;
  }
  load.blocks = std::max<int64_t>(1, CeilDivide(parameters * sizeof(float), int64_t{job.block_kib()} * 1024));
  load.groups = static_cast<int>(NumGroups(consistency));
  load.backup = static_cast<int>(BackupWorkers(consistency));
  load.bounded = consistency.has_bounded_staleness();
  return load;
}

const char* ToString(Limit limit) {
  switch (limit) {
    case Limit::kOtherWorkers:
      return "waiting for other workers";
    case Limit::kRoundTrip:
      return "the round trip";
    case Limit::kWorkerLink:
      return "the workers' links";
    case Limit::kServerLink:
      return "the servers' links";
    case Limit::kServerProcessor:
      return "the servers' processors";
  }
  return "";
}

ThroughputModel::ThroughputModel(const Load& load, const Distribution& step, std::map<uint32_t, double> slow,
                                 const NetworkModel& network)
    : load_(load),
      step_(step.mean),
      slow_(std::move(slow)),
      network_(network),
      computing_(Draw(step, load.steps)) {}

Prediction ThroughputModel::Predict(int workers, int servers) const {
  const Way way = WayOf(servers);
  return load_.groups > 0 ? PredictGroups(workers, way) : PredictArrivals(workers, way);
}

int ThroughputModel::MostWorkers(int servers, double efficiency) const {
  const auto keeps = [&](int workers) { return Predict(workers, servers).efficiency >= efficiency; };
  int above = kMostWorkers + 1;
  for (int workers = kMostWorkers; workers > 0; workers = std::min(workers - 1, workers * 19 / 20)) {
    if (!keeps(workers)) {
      above = workers;
      continue;
    }
    int most = workers;
    while (above - most > 1) {
      const int middle = most + (above - most) / 2;
      (keeps(middle) ? most : above) = middle;
    }
    return most;
  }
  return 0;
}

ThroughputModel::Way ThroughputModel::WayOf(int servers) const {
  Way way;
  way.per_server = static_cast<double>(CeilDivide(load_.blocks, int64_t{servers}));
  way.blocks = servers * way.per_server;
  const double sent = load_.sent / way.blocks + kHeaderBytes;
  const double received = load_.received / way.blocks + kHeaderBytes;
  const double processor = kServerSecondsPerBlock + kServerSecondsPerByte * (sent + received);
  const double bandwidth = network_.bytes_per_second;
  if (bandwidth > 0) {
    way.trip = (sent + received) / bandwidth;
    way.link = std::max(sent, received) / bandwidth;
  }
  way.trip += processor;
  way.slowest = std::max(way.link, processor);
  way.processor = processor > way.link;
  return way;
}

double ThroughputModel::Exchange(const Way& way) const {
  return way.trip + std::max((way.per_server - 1) * way.slowest, (way.blocks - 1) * way.link);
}

double ThroughputModel::Visible(const Way& way, double exchange) const {
  const double hidden = 1 - load_.exposed;
  return 2 * network_.latency + std::max({load_.exposed * exchange, way.trip, exchange - hidden * step_});
}

double ThroughputModel::Factor(int worker) const {
  const auto found = slow_.find(static_cast<uint32_t>(worker));
  return found == slow_.end() ? 1 : found->second;
}

// The integral of the probability that the update is not yet due.
double ThroughputModel::ExpectedWait(const std::vector<double>& factors, int backup, double apart) const {
  const int members = static_cast<int>(factors.size());
  const int sets = std::min(members, kSets);
  std::map<std::pair<double, double>, int> classes;  // (factor, begin of the step) -> members
  for (int i = 0; i < members; ++i) {
    const int64_t set = int64_t{i} * sets / members;
    const double place = static_cast<double>(set) * (members - 1) / std::max(1, sets - 1);
    ++classes[{factors[i], apart * place}];
  }
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const auto& [one, count] : classes) {
    begin = std::min(begin, one.second + one.first * computing_.front());
    end = std::max(end, one.second + one.first * computing_.back());
  }
  const auto due = [&](double time) {
    Unfinished unfinished(backup);
    for (const auto& [one, count] : classes) {
      const double computed = (time * (1 + 1e-12) - one.second) / one.first;
      const auto finished = std::upper_bound(computing_.begin(), computing_.end(), computed);
      unfinished.Add(count, static_cast<double>(computing_.end() - finished) / computing_.size());
    }
    return unfinished.Probability();
  };
  double sum = begin, last = begin, last_probability = 1 - due(begin);
  for (int i = 1; i <= kPoints && end > begin; ++i) {
    const double time = begin * std::pow(end / begin, static_cast<double>(i) / kPoints);
    const double probability = 1 - due(time);
    sum += 0.5 * (time - last) * (probability + last_probability);
    last = time;
    last_probability = probability;
  }
  return sum;
}

Prediction ThroughputModel::PredictGroups(int workers, const Way& way) const {
  const int groups = std::min(load_.groups, workers);
  const double computing = static_cast<double>(load_.steps) * step_;
  Prediction sum;
  double alone = 0;
  for (int group = 0; group < groups; ++group) {
    std::vector<double> factors;
    for (int worker = group; worker < workers; worker += groups) {
      factors.push_back(Factor(worker));
      alone += 1 / (factors.back() * computing);
    }
    const int members = static_cast<int>(factors.size());
    const int used = std::max(1, members - load_.backup);
    const double wait = ExpectedWait(factors, members - used, 0);
    const double apart = ExpectedWait(factors, members - used, way.service()) - wait;
    const double exchange = Visible(way, Exchange(way) + apart);
    sum.contributions_per_second += used / (wait + exchange);
    sum.exchange = std::max(sum.exchange, exchange);
    sum.others = std::max(sum.others, wait - computing);
  }
  sum.contributions_per_second = std::min(sum.contributions_per_second, 1 / way.service());
  sum.efficiency = sum.contributions_per_second / alone;
  sum.limit = LimitOf(way, workers, sum.others, sum.exchange);
  return sum;
}

Prediction ThroughputModel::PredictArrivals(int workers, const Way& way) const {
  std::map<double, int> classes;
  for (int worker = 0; worker < workers; ++worker) ++classes[Factor(worker)];
  const double service = way.service(), unloaded = Exchange(way);
  const double computing = static_cast<double>(load_.steps) * step_;
  const double slowest = classes.rbegin()->first;
  const auto rate = [&](double residence) {
    const double visible = Visible(way, unloaded + residence - service);
    double sum = 0;
    for (const auto& [factor, count] : classes) {
      sum += count / ((load_.bounded ? slowest : factor) * computing + visible);
    }
    return sum;
  };
  const double others = static_cast<double>(workers - 1) / workers;
  double low = service, high = service * workers;
  for (int i = 0; i < kBisections; ++i) {
    const double residence = 0.5 * (low + high);
    const double queue = rate(residence) * (residence - 0.5 * service);
    (service * (1 + others * queue) > residence ? low : high) = residence;
  }
  Prediction prediction;
  prediction.contributions_per_second = std::min(rate(low), 1 / service);
  prediction.exchange = Visible(way, unloaded + low - service);
  double alone = 0;
  for (const auto& [factor, count] : classes) alone += count / (factor * computing);
  prediction.efficiency = prediction.contributions_per_second / alone;
  prediction.others = load_.bounded ? (slowest - 1) * computing : 0;
  prediction.limit = LimitOf(way, workers, prediction.others, prediction.exchange);
  return prediction;
}

Limit ThroughputModel::LimitOf(const Way& way, int workers, double others, double exchange) const {
  if (others >= exchange) return Limit::kOtherWorkers;
  const double trip = 2 * network_.latency + way.trip;
  if (exchange < 2 * trip) return Limit::kRoundTrip;
  if (way.blocks * way.link > workers * way.service()) return Limit::kWorkerLink;
  return way.processor ? Limit::kServerProcessor : Limit::kServerLink;
}

}  // namespace catchment
