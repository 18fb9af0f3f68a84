#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/base/terminal.h"
#include "cli/job/job_explanation.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr int kWidest = 100;
constexpr int kShownServers = 8;
constexpr size_t kShownTensors = 3;
constexpr size_t kShownParts = 4;
// The largest excess over an even share that is not mentioned.
constexpr double kEven = 0.01;

std::string HoldsWhat(const ParameterLayout& layout, int server) {
  const Range shard = layout.shard(server);
  std::vector<std::string> ends;
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const Range tensor = layout.tensor(static_cast<int>(t));
    if (tensor.end <= shard.begin || tensor.begin >= shard.end) continue;
    const bool whole = tensor.begin >= shard.begin && tensor.end <= shard.end;
    ends.push_back(absl::StrCat(whole ? "" : "part of ", layout.tensors()[t].name));
  }
  return ends.size() == 1 ? ends.front() : absl::StrCat(ends.front(), " to ", ends.back());
}

std::string ServerTable(const ParameterLayout& layout) {
  Table table;
  table.Add({"server", "parameters", "bytes", "against even", "blocks", "tensors"});
  for (const int s : ShownServers(layout.num_shards())) {
    if (s < 0) {
      table.Add({"...", "", "", "", "", ""});
      continue;
    }
    const int64_t size = layout.shard(s).size();
    table.Add({absl::StrCat(s), Count(size), Bytes(size * sizeof(float)),
               absl::StrFormat("%+.3f %%", 100 * AgainstEven(layout, s)), Count(layout.num_blocks(s)),
               HoldsWhat(layout, s)});
  }
  return table.Print();
}

std::string DescribeParts(const std::vector<TensorPart>& parts) {
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(parts.size(), kShownParts); ++i) {
    words.push_back(absl::StrCat(Count(parts[i].values.size()), " on ", parts[i].server));
  }
  if (parts.size() > kShownParts) {
    words.push_back(
        absl::StrCat("and so on to ", Count(parts.back().values.size()), " on ", parts.back().server));
  }
  return absl::StrJoin(words, ", ");
}

std::string DescribeSplits(const ParameterLayout& layout) {
  std::vector<std::string> splits;
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const std::vector<TensorPart> parts = PartsOf(layout, static_cast<int>(t));
    if (parts.size() == 1) continue;
    splits.push_back(absl::StrCat(layout.tensors()[t].name, ", ", DescribeParts(parts)));
  }
  if (splits.empty()) return "No tensor is split between servers.";
  const size_t more = splits.size() - std::min(splits.size(), kShownTensors);
  splits.resize(splits.size() - more);
  return absl::StrCat("Split between servers: ", absl::StrJoin(splits, "; "),
                      more == 0 ? "" : absl::StrCat("; and ", Plural(more, "more tensor")), ".");
}

bool Whole(const ParameterLayout& layout) { return layout.cuts() == Cuts::kBetweenTensors; }

std::string DescribeLargest(const ParameterLayout& layout) {
  const auto largest =
      std::max_element(layout.tensors().begin(), layout.tensors().end(),
                       [](const TensorSpec& a, const TensorSpec& b) { return a.size() < b.size(); });
  return absl::StrCat("the largest, ", largest->name, ", has ",
                      Percent(static_cast<double>(largest->size()) / layout.size()), " of the parameters");
}

std::string DescribeUnevenness(const ParameterLayout& layout) {
  double most = 0;
  for (int s = 0; s < layout.num_shards(); ++s) most = std::max(most, std::abs(AgainstEven(layout, s)));
  if (most <= kEven) return "";
  if (Whole(layout)) {
    return absl::StrCat(" Servers differ by more than 1 %, because tensors stay whole, and ",
                        DescribeLargest(layout), ".");
  }
  return " Servers differ by more than 1 %, because parts start at multiples of 16 parameters, and the model "
         "is small for this number of servers.";
}

std::string DescribeBlocks(const JobFacts& facts) {
  const ParameterLayout& layout = facts.layout();
  const int64_t size = layout.block_size(), kib = facts.job().block_kib();
  const int64_t blocks = CountBlocks(layout);
  if (blocks == facts.servers()) {
    return absl::StrCat("A server's part is one block",
                        Whole(layout) ? "" : absl::StrCat(" of at most block_kib, ", kib, " KiB"),
                        ": it is sent, answered and applied as a whole, by one thread.");
  }
  if (Whole(layout)) {
    return absl::StrCat(
        "A block, whole tensors of together at most block_kib ", kib,
        " KiB or one larger tensor alone, is locked, sent, answered and counted as one: a push is ",
        Count(blocks), " messages.");
  }
  return absl::StrCat("A block, of block_kib ", kib,
                      " KiB, is locked, sent, answered and counted as one: a push is ", Count(blocks),
                      " messages (", Count(CountBlocks(layout, (size + 1) / 2)), " with block_kib ",
                      (kib + 1) / 2, ", ", Count(CountBlocks(layout, 2 * size)), " with ", 2 * kib,
                      "). With smaller blocks the first weights return sooner and more threads share a "
                      "server's part, but there are more messages to handle.");
}

}  // namespace

std::vector<TensorPart> PartsOf(const ParameterLayout& layout, int tensor) {
  const Range range = layout.tensor(tensor);
  std::vector<TensorPart> parts;
  for (int s = 0; s < layout.num_shards(); ++s) {
    const int64_t begin = std::max(range.begin, layout.shard(s).begin);
    const int64_t end = std::min(range.end, layout.shard(s).end);
    if (begin < end) parts.push_back({s, {begin - range.begin, end - range.begin}});
  }
  return parts;
}

double AgainstEven(const ParameterLayout& layout, int server) {
  const double even = static_cast<double>(layout.size()) / layout.num_shards();
  return layout.shard(server).size() / even - 1;
}

int64_t CountBlocks(const ParameterLayout& layout) {
  int64_t blocks = 0;
  for (int s = 0; s < layout.num_shards(); ++s) blocks += layout.num_blocks(s);
  return blocks;
}

int64_t CountBlocks(const ParameterLayout& layout, int64_t block_size) {
  int64_t blocks = 0;
  for (int s = 0; s < layout.num_shards(); ++s)
    blocks += (layout.shard(s).size() + block_size - 1) / block_size;
  return blocks;
}

std::vector<int> ShownServers(int servers) {
  std::vector<int> shown;
  for (int s = 0; s < servers; ++s) {
    if (servers <= kShownServers || s + 2 < kShownServers || s == servers - 1) shown.push_back(s);
    if (servers > kShownServers && s + 2 == kShownServers) shown.push_back(-1);
  }
  return shown;
}

std::string ExplainPlacement(const JobFacts& facts) {
  const ParameterLayout& layout = facts.layout();
  const std::string blocks = DescribeBlocks(facts);
  if (facts.servers() == 1) {
    return absl::StrCat("placement\n", HangingParagraph("  ", absl::StrCat("All on one server. ", blocks), 2,
                                                        ProseColumns(kWidest)));
  }
  const std::string how = Whole(layout) ? "each as a whole, in parts that are as even as possible"
                                        : "split into parts of equal size";
  return absl::StrCat("placement (the tensors one after another, ", how, ")\n", ServerTable(layout),
                      HangingParagraph("  ", absl::StrCat(DescribeSplits(layout), DescribeUnevenness(layout)),
                                       2, ProseColumns(kWidest)),
                      HangingParagraph("  ", blocks, 2, ProseColumns(kWidest)));
}

}  // namespace catchment
