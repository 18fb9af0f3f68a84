#include "kernels/cpu/conv_choice.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace catchment {
namespace {

using dnnl::memory;
using A = ConvAlgorithm;
using L = ConvLayout;

// An output in another layout than oneDNN's first choice may need copies in later layers, which are not
// measured here, so it must be faster by this factor.
constexpr double kOtherLayoutAdvantage = 1.1;
// Output layouts whose forward pass alone is slower by more than this factor are not examined further.
constexpr double kForwardSlack = 1.15;

const ConvMethod kMeasuredForward[] = {{A::kDirect, L::kAny, L::kAny},
                                       {A::kWinograd, L::kAny, L::kAny},
                                       {A::kTiledWinograd, L::kAny, L::kAny},
                                       {A::kDirect, L::kGiven, L::kAny},
                                       {A::kDirect, L::kChannelsLast, L::kChannelsLast},
                                       {A::kDirect, L::kPlain, L::kPlain}};
const ConvMethod kMeasuredBackward[] = {{A::kDirect, L::kGiven, L::kGiven},
                                        {A::kWinograd, L::kGiven, L::kGiven},
                                        {A::kTiledWinograd, L::kAny, L::kAny},
                                        {A::kFewChannels, L::kGiven, L::kGiven},
                                        {A::kDirect, L::kAny, L::kGiven},
                                        {A::kDirect, L::kAny, L::kAny},
                                        {A::kDirect, L::kChannelsLast, L::kChannelsLast},
                                        {A::kDirect, L::kPlain, L::kPlain}};
const ConvMethod kFixedForward[] = {
    {A::kOneDnn, L::kAny, L::kAny}, {A::kDirect, L::kAny, L::kAny}, {A::kDirect, L::kPlain, L::kPlain}};
const ConvMethod kFixedBackward[] = {
    {A::kOneDnn, L::kGiven, L::kGiven},      {A::kDirect, L::kGiven, L::kGiven},
    {A::kFewChannels, L::kGiven, L::kGiven}, {A::kDirect, L::kAny, L::kGiven},
    {A::kDirect, L::kAny, L::kAny},          {A::kDirect, L::kPlain, L::kPlain}};

struct Candidate {
  ConvMethod method;
  ConvDescription description;
};

// The functions that describe, create and run one pass.
template <typename Pass>
struct Maker {
  memory::desc source;  // the layout of the input, or of its gradient, that needs no copy
  std::function<std::optional<ConvDescription>(ConvMethod)> describe;
  std::function<std::unique_ptr<Pass>(const ConvDescription&)> make;
  std::function<void(Pass*)> run;
};

// Returns the descriptions of the possible `methods`, in their order, without repetition; reference loops
// only if there is nothing else.
template <typename Pass>
std::vector<Candidate> ListCandidates(const Maker<Pass>& maker, absl::Span<const ConvMethod> methods) {
  std::vector<Candidate> compiled, reference;
  for (const ConvMethod& method : methods) {
    std::optional<ConvDescription> description = maker.describe(method);
    if (!description) continue;
    auto& list = description->is_reference() ? reference : compiled;
    const bool known = std::any_of(list.begin(), list.end(),
                                   [&](const Candidate& c) { return c.description == *description; });
    if (!known) list.push_back({method, *std::move(description)});
  }
  return compiled.empty() ? reference : compiled;
}

// Keeps only those for which `preferred` is true, if there are any.
template <typename Predicate>
void Prefer(std::vector<Candidate>* candidates, Predicate preferred) {
  const auto is_other = [&](const Candidate& c) { return !preferred(c.description); };
  if (std::all_of(candidates->begin(), candidates->end(), is_other)) return;
  std::erase_if(*candidates, is_other);
}

template <typename Pass>
struct Measured {
  ConvMethod method{};
  std::unique_ptr<Pass> pass;  // null if it is impossible
  double seconds = 0;
};

// Returns the processor time of the calling thread. It does not include other programs on the machine; in a
// parallel loop it includes what the thread computes and its wait for the other threads.
double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Returns the seconds of the fastest of a few runs, after one for warming up. Stops early if a run takes
// long, or so much longer than `best` that further runs cannot matter.
template <typename Run>
double Measure(Run run, double best) {
  constexpr int kRuns = 4;
  constexpr double kLong = 0.03, kHopeless = 1.5;
  double fastest = std::numeric_limits<double>::infinity(), total = 0;
  run();
  for (int i = 0; i < kRuns && total < kLong; ++i) {
    const double start = ThreadSeconds();
    run();
    const double seconds = ThreadSeconds() - start;
    fastest = std::min(fastest, seconds);
    total += seconds;
    if (fastest > kHopeless * best) break;
  }
  return fastest;
}

// Returns the fastest of the candidates. A single candidate is not measured, and has 0 seconds, unless
// `always_measure`.
template <typename Pass>
Measured<Pass> TakeFastest(const Maker<Pass>& maker, absl::Span<const Candidate> candidates,
                           bool always_measure) {
  Measured<Pass> best;
  for (const Candidate& candidate : candidates) {
    auto made = TryMake([&] { return maker.make(candidate.description); });
    if (!made) continue;
    const bool measure = always_measure || candidates.size() > 1;
    const double limit = best.pass ? best.seconds : std::numeric_limits<double>::infinity();
    const double seconds = measure ? Measure([&] { maker.run(made->get()); }, limit) : 0;
    if (seconds < limit) best = {candidate.method, *std::move(made), seconds};
  }
  return best;
}

// Returns the first candidate that can be created.
template <typename Pass>
std::unique_ptr<Pass> TakeFirst(const Maker<Pass>& maker, absl::Span<const ConvMethod> methods) {
  for (const Candidate& candidate : ListCandidates(maker, methods)) {
    auto made = TryMake([&] { return maker.make(candidate.description); });
    if (made) return *std::move(made);
  }
  return nullptr;
}

class Selector {
 public:
  Selector(CpuContext* context, const ConvSpec& spec, const CpuActivation& input)
      : context_(context), spec_(spec), g_(spec.geometry), input_(input), parameters_(g_.num_parameters()) {}

  // Uses `known`, or, if that is impossible with this batch size, the first possible method of the fixed
  // lists.
  ConvPasses Known(const ConvChoice& known) {
    return First({WithFixed(known.forward, kFixedForward), WithFixed(known.weights, kFixedBackward),
                  WithFixed(known.data, kFixedBackward)});
  }

  ConvPasses Fixed() {
    return First({FixedList(kFixedForward), FixedList(kFixedBackward), FixedList(kFixedBackward)});
  }

  ConvPasses Fastest(ConvChoice* choice) {
    ConvPasses best;
    double best_seconds = 0;
    std::vector<Measured<ConvForward>> forwards = ListForwards();
    const bool compare = forwards.size() > 1;
    for (Measured<ConvForward>& forward : forwards) {
      Measured<ConvPass> weights = FastestBackward(WeightsMaker(*forward.pass), *forward.pass, compare);
      Measured<ConvPass> data;
      if (spec_.input_gradient) data = FastestBackward(DataMaker(*forward.pass), *forward.pass, compare);
      const double seconds = forward.seconds + weights.seconds + data.seconds;
      if (best.forward && seconds * kOtherLayoutAdvantage >= best_seconds) continue;
      best_seconds = seconds;
      *choice = {forward.method, weights.method, data.method};
      best = {std::move(forward.pass), std::move(weights.pass), std::move(data.pass)};
    }
    return best;
  }

 private:
  struct Lists {
    std::vector<ConvMethod> forward, weights, data;
  };

  // With fewer channels than a block has, oneDNN may choose Winograd's algorithm, which is then slow.
  std::vector<ConvMethod> FixedList(absl::Span<const ConvMethod> fixed) const {
    std::vector<ConvMethod> methods(fixed.begin(), fixed.end());
    if (g_.source[1] < 8) std::erase_if(methods, [](ConvMethod m) { return m.algorithm == A::kOneDnn; });
    return methods;
  }

  std::vector<ConvMethod> WithFixed(const ConvMethod& first, absl::Span<const ConvMethod> fixed) const {
    std::vector<ConvMethod> methods = FixedList(fixed);
    methods.insert(methods.begin(), first);
    return methods;
  }

  ConvPasses First(const Lists& lists) {
    ConvPasses passes;
    passes.forward = TakeFirst(ForwardMaker(), lists.forward);
    if (!passes.forward) return passes;
    passes.weights = TakeFirst(WeightsMaker(*passes.forward), lists.weights);
    if (spec_.input_gradient) passes.data = TakeFirst(DataMaker(*passes.forward), lists.data);
    return passes;
  }

  // Returns the fastest forward pass for each output layout in which it is about as fast as in the best one.
  std::vector<Measured<ConvForward>> ListForwards() {
    std::vector<Candidate> candidates = ListCandidates(ForwardMaker(), kMeasuredForward);
    Prefer(&candidates, [](const ConvDescription& d) { return !d.is_product(); });
    std::vector<Measured<ConvForward>> forwards;
    const bool several = candidates.size() > 1;
    while (!candidates.empty()) {
      const memory::desc layout = candidates.front().description.output;
      const auto others =
          std::stable_partition(candidates.begin(), candidates.end(),
                                [&](const Candidate& c) { return c.description.output == layout; });
      auto fastest = TakeFastest(
          ForwardMaker(), {candidates.data(), static_cast<size_t>(others - candidates.begin())}, several);
      if (fastest.pass) forwards.push_back(std::move(fastest));
      candidates.erase(candidates.begin(), others);
    }
    double best = std::numeric_limits<double>::infinity();
    for (const auto& forward : forwards) best = std::min(best, forward.seconds);
    std::erase_if(forwards, [&](const auto& forward) { return forward.seconds > kForwardSlack * best; });
    return forwards;
  }

  // A product needs no copies, or is the only method. Of the other kernels that need no copies only these are
  // measured.
  Measured<ConvPass> FastestBackward(const Maker<ConvPass>& maker, ConvForward& forward,
                                     bool always_measure) {
    const auto needs_no_copy = [&](const ConvDescription& d) {
      return d.source == maker.source && d.output == forward.output()->layout();
    };
    std::vector<Candidate> candidates = ListCandidates(maker, kMeasuredBackward);
    Prefer(&candidates, [&](const ConvDescription& d) { return !d.is_product() || needs_no_copy(d); });
    Prefer(&candidates, [&](const ConvDescription& d) { return !d.is_product() && needs_no_copy(d); });
    return TakeFastest(maker, candidates, always_measure);
  }

  Maker<ConvForward> ForwardMaker() {
    return {input_.layout(),
            [this](ConvMethod method) {
              return DescribeForward(context_, g_, method, input_.layout(), spec_.relu);
            },
            [this](const ConvDescription& d) { return MakeConvForward(context_, g_, d, input_.value()); },
            [this](ConvForward* pass) { pass->Run(parameters_.data(), nullptr); }};
  }

  // kGiven is the layout of the input in the forward pass, whose copy this pass can share.
  Maker<ConvPass> WeightsMaker(ConvForward& forward) {
    return {forward.source().get_desc(),
            [this, &forward](ConvMethod method) {
              return DescribeBackwardWeights(context_, g_, method, forward.source().get_desc(),
                                             forward.output()->layout());
            },
            [this, &forward](const ConvDescription& d) {
              const bool shared = d.source == forward.source().get_desc();
              return MakeConvBackwardWeights(context_, g_, d, shared ? forward.source() : input_.value(),
                                             forward.output()->gradient());
            },
            [this](ConvPass* pass) { pass->Run(nullptr, parameters_.data()); }};
  }

  Maker<ConvPass> DataMaker(ConvForward& forward) {
    return {input_.layout(),
            [this, &forward](ConvMethod method) {
              return DescribeBackwardData(context_, g_, method, input_.layout(), forward.output()->layout());
            },
            [this, &forward](const ConvDescription& d) {
              return MakeConvBackwardData(context_, g_, d, input_.gradient(), forward.output()->gradient());
            },
            [this](ConvPass* pass) { pass->Run(parameters_.data(), nullptr); }};
  }

  CpuContext* context_;
  const ConvSpec& spec_;
  const ConvGeometry& g_;
  const CpuActivation& input_;
  std::vector<float> parameters_;  // for measuring
};

}  // namespace

ConvPasses MakeConvPasses(CpuContext* context, ConvChoices* choices, const ConvSpec& spec,
                          const CpuActivation& input) {
  Selector selector(context, spec, input);
  if (context->deterministic()) return selector.Fixed();
  const std::string key = absl::StrCat(spec.geometry.Key(), spec.input_gradient ? " with data" : "");
  const auto known = choices->by_geometry.find(key);
  if (known != choices->by_geometry.end()) return selector.Known(known->second);
  ConvChoice choice;
  ConvPasses passes = selector.Fastest(&choice);
  if (passes.complete(spec)) choices->by_geometry[key] = choice;
  return passes;
}

}  // namespace catchment
