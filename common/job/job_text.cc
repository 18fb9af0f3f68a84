#include "common/job/job_text.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/random.h"
#include "glog/logging.h"

namespace catchment {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

// On one line, in braces.
std::string Brief(const Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  CHECK(printer.PrintToString(message, &text));
  absl::StripAsciiWhitespace(&text);
  return absl::StrCat("{ ", text, text.empty() ? "}" : " }");
}

void CompareModels(const v1::Model& saved, const v1::Model& now, std::vector<std::string>* lines) {
  for (int i = 0; i < std::min(saved.layers_size(), now.layers_size()); ++i) {
    if (MessageDifferencer::Equals(saved.layers(i), now.layers(i))) continue;
    lines->push_back(absl::StrCat("model.layers[", i, "]: saved ", Brief(saved.layers(i)), ", now ",
                                  Brief(now.layers(i))));
  }
  if (saved.layers_size() != now.layers_size()) {
    lines->push_back(
        absl::StrCat("model.layers: saved ", saved.layers_size(), " layers, now ", now.layers_size()));
  }
  if (!MessageDifferencer::Equals(saved.synthetic(), now.synthetic())) {
    lines->push_back(
        absl::StrCat("model.synthetic: saved ", Brief(saved.synthetic()), ", now ", Brief(now.synthetic())));
  }
  if (!MessageDifferencer::Equals(saved.external(), now.external())) {
    lines->push_back("model.external: the saved job's tensors have other names or shapes than this job's");
  }
}

v1::Data WithoutPlace(v1::Data data) {
  if (data.has_mnist()) data.mutable_mnist()->clear_directory();
  if (data.has_table()) data.mutable_table()->clear_directory();
  return data;
}

}  // namespace

std::string JobText(const v1::Job& job) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(job, &text));
  return text;
}

uint64_t JobFingerprint(const v1::Job& job) {
  v1::Job placeless = job;
  *placeless.mutable_data() = WithoutPlace(job.data());
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    CHECK(placeless.SerializeToCodedStream(&coded));
  }
  uint64_t hash = bytes.size();
  for (char c : bytes) hash = Derive(hash, static_cast<uint8_t>(c));
  return hash;
}

std::string DescribeResumeConflict(const v1::Job& saved, const v1::Job& now) {
  std::vector<std::string> lines;
  CompareModels(saved.model(), now.model(), &lines);
  const v1::Data saved_data = WithoutPlace(saved.data());
  const v1::Data now_data = WithoutPlace(now.data());
  if (!MessageDifferencer::Equals(saved_data, now_data)) {
    lines.push_back(absl::StrCat("data: saved ", Brief(saved_data), ", now ", Brief(now_data)));
  }
  if (saved.seed() != now.seed()) {
    lines.push_back(absl::StrCat("seed: saved ", saved.seed(), ", now ", now.seed(),
                                 "; the order of the samples follows from it"));
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace catchment
