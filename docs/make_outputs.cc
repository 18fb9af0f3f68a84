// Writes the tables of docs/outputs.md anew, from the measures (common/measures):
//   bazel run //docs:make_outputs
// A table is below a line "<!-- measures: NAME -->", and ends at the next empty line.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/measures/measures.h"

namespace catchment {
namespace {

std::string Code(const std::string& name) { return name.empty() ? "" : absl::StrCat("`", name, "`"); }

template <typename Reading>
std::string TableOf(absl::Span<const Measure<Reading>> measures) {
  std::string table =
      "| key | unit | meaning | in | Prometheus | TensorBoard |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const Measure<Reading>& measure : measures) {
    std::vector<std::string> in;
    if ((measure.in & (kInLines | kOfWorkersOnly)) != 0) in.push_back("m");
    if ((measure.in & (kInSummary | kOfWorkersOnly)) != 0) in.push_back("s");
    if ((measure.in & kInStatus) != 0) in.push_back("j");
    absl::StrAppend(&table, "| ",
                    absl::StrJoin({Code(measure.key), std::string(measure.unit), std::string(measure.help),
                                   absl::StrJoin(in, " "), Code(measure.prometheus), Code(measure.tag)},
                                  " | "),
                    " |\n");
  }
  return table;
}

int Run(const std::string& path) {
  std::ifstream in(path);
  std::string page{std::istreambuf_iterator<char>(in), {}};
  const std::map<std::string, std::string> tables = {{"job", TableOf(JobMeasures())},
                                                     {"worker", TableOf(WorkerMeasures())},
                                                     {"server", TableOf(ShardMeasures())},
                                                     {"pushes", TableOf(PushMeasures())}};
  for (const auto& [name, table] : tables) {
    const std::string mark = absl::StrCat("<!-- measures: ", name, " -->\n");
    const size_t at = page.find(mark);
    if (at == std::string::npos) {
      std::cerr << path << ": has no line " << mark;
      return 1;
    }
    const size_t begin = at + mark.size();
    page.replace(begin, page.find("\n\n", at) + 1 - begin, table);
  }
  std::ofstream(path) << page;
  return 0;
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  const char* const workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  return catchment::Run(argc > 1 ? argv[1]
                                 : absl::StrCat(workspace == nullptr ? "." : workspace, "/docs/outputs.md"));
}
