#include "cli/compare/compare_progress.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

std::string LabelOf(const PlannedRun& run) {
  return absl::StrCat(run.algorithm, ", ", Plural(run.workers, "worker"), ", seed ", run.seed);
}

void CompareProgress::Begin(const std::string& label) { label_ = label; }

void CompareProgress::End(const std::string& result) {
  ++done_;
  Note(absl::StrCat(Head(), label_, ": ", result, TimeLeft()));
}

void CompareProgress::Update(const v1::JobStatus& status) {
  if (columns_ == 0) return;
  const std::string line = absl::StrCat(Head(), label_, TimeLeft(), " | ", ProgressLine(status));
  out_ << kEraseLine << FitLine(line, columns_) << std::flush;
  drawn_ = true;
}

void CompareProgress::Note(const std::string& text) {
  Clear();
  out_ << text << '\n' << std::flush;
}

void CompareProgress::Clear() {
  if (drawn_) out_ << kEraseLine << std::flush;
  drawn_ = false;
}

std::string CompareProgress::Head() const {
  const int width = static_cast<int>(absl::StrCat(runs_).size());
  return absl::StrFormat("[%*d/%d] ", width, done_, runs_);
}

std::string CompareProgress::TimeLeft() const {
  if (done_ == 0 || done_ == runs_) return "";
  const double each = (clock_.Now() - began_) / done_;
  return absl::StrCat(" | ", Seconds(each * (runs_ - done_)), " left");
}

}  // namespace catchment
