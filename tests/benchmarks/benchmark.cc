#include "tests/benchmarks/benchmark.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr const BenchmarkKind* kKinds[] = {&kApply, &kCheckpoint, &kCodecs, &kControl, &kScaling, &kWire};

constexpr char kProgram[] = "bazel run -c opt //tests/benchmarks:benchmark -- ";

std::string CellOf(const Row& row, const Column& column) {
  const auto value = row.find(column.key);
  if (value == row.end() || value->is_null()) return "";
  if (value->is_string()) return *value;
  if (value->is_boolean()) return *value ? "yes" : "no";
  if (value->is_number_integer()) return Count(*value);
  if (column.decimals == Column::kShort) return Short(*value, 3);
  return absl::StrFormat("%.*f", column.decimals, value->get<double>());
}

absl::Status WriteRows(const std::vector<Row>& rows, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // `bazel run` starts programs in another directory, and passes the one where it was called.
  const char* const caller = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path file = std::filesystem::path(caller == nullptr ? "" : caller) / path;
  std::ofstream out(file);
  out << "[";
  for (size_t i = 0; i < rows.size(); ++i) out << (i == 0 ? "\n" : ",\n") << rows[i].dump();
  out << "\n]\n";
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", file.string(), "; give --json a folder that exists"));
}

absl::Status Run(const BenchmarkKind& kind, Benchmark* benchmark, const std::string& json) {
  // It is better to know now than at the end that the file cannot be written.
  RETURN_IF_ERROR(WriteRows({}, json));
  std::string directory = std::filesystem::temp_directory_path() / "catchment_benchmark.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the directory ", directory));
  std::vector<Row> rows;
  const absl::Status status = benchmark->Run(directory, &rows);
  if (!rows.empty()) PrintRows(rows, kind.columns);
  if (!status.ok()) {
    std::cerr << "logs are in " << directory << "\n";
    return status;
  }
  if (kind.conclude != nullptr) kind.conclude(rows);
  std::filesystem::remove_all(directory);
  return WriteRows(rows, json);
}

// Adds the values of each flag to a list, instead of its default.
template <typename T, typename Read>
std::function<absl::Status(const std::string&)> ListReader(std::vector<T>* out, Read read) {
  return [out, read, is_default = true](const std::string& text) mutable -> absl::Status {
    if (std::exchange(is_default, false)) out->clear();
    for (const absl::string_view word : absl::StrSplit(text, ',')) {
      ASSIGN_OR_RETURN(T value, read(std::string(word)));
      out->push_back(std::move(value));
    }
    return absl::OkStatus();
  };
}

}  // namespace

int RunBenchmarks(const std::vector<std::string>& args) {
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const auto* kind) { return !args.empty() && kind->name == args[0]; });
  if (kind == std::end(kKinds)) {
    const auto append_name = [](std::string* out, const BenchmarkKind* kind) { out->append(kind->name); };
    std::cerr << kProgram << "NAME [flags]\n\nNAME --help describes one of "
              << absl::StrJoin(kKinds, ", ", append_name) << ".\n";
    return kExitUsage;
  }
  const std::unique_ptr<Benchmark> benchmark = (*kind)->make();
  std::string json;
  CommandLine line;
  line.name = (*kind)->name;
  line.usage = absl::StrCat(kProgram, line.name, " [flags]\n\n", (*kind)->usage);
  benchmark->AddFlags(&line.flags);
  line.flags.AddString("json", "FILE", &json, "Writes the rows there, a list of objects.");
  return RunCommandLine(&line, {args.begin() + 1, args.end()}, &std::cout, &std::cerr,
                        [&]() -> absl::StatusOr<int> {
                          RETURN_IF_ERROR(Run(**kind, benchmark.get(), json));
                          return 0;
                        });
}

void PrintRows(const std::vector<Row>& rows, const std::vector<Column>& columns) {
  Table table;
  std::vector<std::string> cells;
  for (const Column& column : columns) cells.push_back(column.head);
  table.Add(cells);
  for (const Row& row : rows) {
    cells.clear();
    for (const Column& column : columns) cells.push_back(CellOf(row, column));
    table.Add(cells);
  }
  std::cout << table.Print(0);
}

void AddNumbers(FlagSet* flags, const std::string& name, int64_t least, int64_t most,
                std::vector<int64_t>* out, const std::string& help) {
  const auto read = [=](const std::string& word) -> absl::StatusOr<int64_t> {
    int64_t number = 0;
    if (absl::SimpleAtoi(word, &number) && number >= least && number <= most) return number;
    return absl::InvalidArgumentError(
        absl::StrCat("takes whole numbers from ", least, " to ", most, ", with commas between"));
  };
  flags->AddParsed(name, "N,M", ListReader(out, read),
                   absl::StrCat(help, " Default: ", absl::StrJoin(*out, ","), "."));
}

void AddNames(FlagSet* flags, const std::string& name, std::vector<std::string>* out,
              const std::string& help) {
  const auto read = [known = *out](const std::string& word) -> absl::StatusOr<std::string> {
    if (std::find(known.begin(), known.end(), word) != known.end()) return word;
    return absl::InvalidArgumentError(absl::StrCat(word, " is not one of ", absl::StrJoin(known, ", ")));
  };
  flags->AddParsed(name, "A,B", ListReader(out, read),
                   absl::StrCat(help, " Default: ", absl::StrJoin(*out, ","), "."));
}

std::vector<std::vector<double>> InTurns(int rounds, const std::vector<Pass>& passes) {
  std::vector<std::vector<double>> figures(passes.size());
  for (int round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < passes.size(); ++i) {
      const double figure = passes[i]();
      if (round > 0) figures[i].push_back(figure);
    }
    std::cerr << "." << std::flush;
  }
  std::cerr << "\n";
  return figures;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double MedianRatio(const std::vector<double>& values, const std::vector<double>& references) {
  std::vector<double> ratios;
  for (size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / references[i]);
  return Median(ratios);
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

}  // namespace catchment
