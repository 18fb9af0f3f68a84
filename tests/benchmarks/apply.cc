// Measures how fast updates are applied: see kUsage. The passes are in apply_case.cc, their memory in
// apply_memory.cc.
#include <cstring>
#include <iostream>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "common/program/command_line.h"
#include "tests/benchmarks/apply_case.h"
#include "tests/benchmarks/apply_memory.h"
#include "tests/benchmarks/report.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(bazel run -c opt //tests/benchmarks:apply -- [flags]

Times the pass over memory that applies a gradient to the weights, as a server does it: block by block of 1
MiB, through the job's rule, the copy of the fresh weights that goes back to the worker included. Beside it,
taking turns in the same run and on the same memory, run a plain loop that reads and writes the same vectors
(the triad) and memcpy. Figures are medians over the rounds, ratios too: of the ratios within a round.

GB/s (1e9 bytes) counts what the program reads and writes, 4 bytes a value, in place twice; not what a cache
reads before it writes a line. SGD moves 16 bytes a parameter, momentum 24, Adam 32; memcpy 8. LARS, LARC and
LAMB, here with a tensor a block, read twice, for the norms; it is counted once.
"of triad" is what is left of the memory's speed: 1.00 means that the arithmetic costs nothing.

14,000 parameters stay in the cache: the rate is the cache's. Of larger models there are enough copies, taken
in turn, for each to come from memory.
)";

struct Options {
  std::vector<std::string> optimizers;
  std::vector<std::string> parameters;
  int rounds = 25;
  int threads = 1;
  std::string json;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddString("json", "FILE", &o->json, "Writes the rows there, a list of objects.");
  flags.AddList("optimizer", "NAME", &o->optimizers, "Only this pass. Any number of times. Default: all.");
  flags.AddList("parameters", "N", &o->parameters,
                "Only models of this size. Any number of times. Default: 14000, 1200000, 11000000.");
  flags.AddInt("rounds", "N", 1, &o->rounds, "Measurements of each figure. Default 25.");
  flags.AddInt("threads", "N", 1, &o->threads, "Threads that share the blocks. Default 1.");
  return flags;
}

absl::StatusOr<std::vector<ApplyCase>> ChooseCases(const std::vector<std::string>& names) {
  if (names.empty()) return ApplyCases();
  std::vector<ApplyCase> chosen;
  for (const std::string& name : names) {
    std::vector<std::string> all;
    const size_t before = chosen.size();
    for (const ApplyCase& c : ApplyCases()) {
      all.push_back(c.name);
      if (c.name == name) chosen.push_back(c);
    }
    if (chosen.size() > before) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--optimizer=", name, " is none of ", absl::StrJoin(all, ", ")));
  }
  return chosen;
}

absl::StatusOr<std::vector<int64_t>> ChooseSizes(const std::vector<std::string>& texts) {
  if (texts.empty()) return std::vector<int64_t>{14000, 1200000, 11000000};
  std::vector<int64_t> sizes;
  for (const std::string& text : texts) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(text, &size) || size < 1 || size > 1000000000) {
      return absl::InvalidArgumentError(absl::StrCat("--parameters=", text, " is not from 1 to 1000000000"));
    }
    sizes.push_back(size);
  }
  return sizes;
}

// The results of all rounds.
struct Samples {
  std::vector<double> pass, triad, memcpy;  // GB/s
  std::vector<double> of_triad, of_memcpy;
};

void MeasureOnce(const ApplyCase& c, const Rule& rule, ApplyMemory* memory, Samples* samples) {
  const int64_t bytes = BytesPerParameter(c, rule);
  const double pass =
      memory->GbPerSecond(bytes, [&](const BlockVectors& block) { ApplyRule(c, rule, block); });
  const double triad = memory->GbPerSecond(bytes, [&](const BlockVectors& block) { c.triad(0, block); });
  const double copy = memory->GbPerSecond(2 * sizeof(float), [](const BlockVectors& block) {
    std::memcpy(block.copy, block.values[0], block.n * sizeof(float));
  });
  samples->pass.push_back(pass);
  samples->triad.push_back(triad);
  samples->memcpy.push_back(copy);
  samples->of_triad.push_back(pass / triad);
  samples->of_memcpy.push_back(pass / copy);
}

std::vector<Samples> MeasureAll(const std::vector<ApplyCase>& cases, int rounds, ApplyMemory* memory) {
  std::vector<std::unique_ptr<Rule>> rules;
  for (const ApplyCase& c : cases) rules.push_back(MakeRule(c.job));
  std::vector<Samples> samples(cases.size());
  for (int round = 0; round <= rounds; ++round) {
    std::vector<Samples> warm_up(cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      MeasureOnce(cases[i], *rules[i], memory, round == 0 ? &warm_up[i] : &samples[i]);
    }
    std::cerr << "." << std::flush;
  }
  return samples;
}

void Report(const ApplyCase& c, int64_t parameters, bool cold, int threads, const Samples& samples,
            Table* table, std::vector<nlohmann::ordered_json>* rows) {
  const nlohmann::ordered_json row = {{"optimizer", c.name},
                                      {"parameters", parameters},
                                      {"cold", cold},
                                      {"threads", threads},
                                      {"gb_per_s", Median(samples.pass)},
                                      {"triad_gb_per_s", Median(samples.triad)},
                                      {"memcpy_gb_per_s", Median(samples.memcpy)},
                                      {"ratio_to_triad", Median(samples.of_triad)},
                                      {"ratio_to_memcpy", Median(samples.of_memcpy)}};
  std::vector<std::string> cells = {c.name, Count(parameters), cold ? "memory" : "cache"};
  for (const char* key : {"gb_per_s", "triad_gb_per_s", "memcpy_gb_per_s"}) {
    cells.push_back(absl::StrFormat("%.1f", row[key].get<double>()));
  }
  for (const char* key : {"ratio_to_triad", "ratio_to_memcpy"}) {
    cells.push_back(absl::StrFormat("%.2f", row[key].get<double>()));
  }
  table->Add(std::move(cells));
  rows->push_back(row);
}

absl::Status Run(const Options& options) {
  const absl::StatusOr<std::vector<ApplyCase>> cases = ChooseCases(options.optimizers);
  if (!cases.ok()) return cases.status();
  const absl::StatusOr<std::vector<int64_t>> sizes = ChooseSizes(options.parameters);
  if (!sizes.ok()) return sizes.status();
  Table table;
  table.Add({"pass", "parameters", "from", "GB/s", "triad", "memcpy", "of triad", "of memcpy"});
  std::vector<nlohmann::ordered_json> rows;
  for (const int64_t parameters : *sizes) {
    std::cerr << Count(parameters) << " parameters: ";
    ApplyMemory memory(parameters, options.threads);
    const std::vector<Samples> samples = MeasureAll(*cases, options.rounds, &memory);
    for (size_t i = 0; i < cases->size(); ++i) {
      Report((*cases)[i], parameters, memory.cold(), options.threads, samples[i], &table, &rows);
    }
    std::cerr << "\n";
  }
  std::cout << "applying an update on " << Plural(options.threads, "thread")
            << ", copy-out included: GB/s read and written\n"
            << table.Print(0);
  return WriteRows(rows, options.json);
}

int Main(const std::vector<std::string>& args) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  return RunBenchmark("apply", kUsage, flags, args, [&] { return Run(options); });
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) { return catchment::Main({argv + 1, argv + argc}); }
