#include "worker/data/bad_files.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace catchment {
namespace {

constexpr size_t kNamed = 10;

// Returns what follows the last semicolon of a message, and the semicolon.
absl::string_view RemedyIn(absl::string_view message) {
  const size_t at = message.rfind("; ");
  return at == absl::string_view::npos ? "" : message.substr(at);
}

}  // namespace

void BadFiles::Add(int64_t place, const absl::Status& why) {
  MutexLock lock(&mu_);
  ++count_;
  first_.emplace(place, why);
  if (first_.size() > kNamed) first_.erase(std::prev(first_.end()));
}

bool BadFiles::any() const {
  MutexLock lock(&mu_);
  return count_ > 0;
}

absl::Status BadFiles::Status(const std::string& field, int64_t all, const std::string& kind) const {
  MutexLock lock(&mu_);
  if (count_ == 0) return absl::OkStatus();
  const absl::Status& first = first_.begin()->second;
  const absl::StatusCode code = absl::IsInvalidArgument(first) ? first.code() : absl::StatusCode::kDataLoss;
  if (count_ == 1) return absl::Status(code, first.message());
  const absl::string_view remedy = RemedyIn(first.message());
  const bool have_one_remedy = std::all_of(first_.begin(), first_.end(), [remedy](const auto& entry) {
    return RemedyIn(entry.second.message()) == remedy;
  });
  std::string text = absl::StrCat(field, ": ", count_, " of ", all, " ", kind, " cannot be used: ");
  for (const auto& [place, why] : first_) {
    absl::StrAppend(&text, place == first_.begin()->first ? "" : ", ",
                    absl::StripSuffix(why.message(), have_one_remedy ? remedy : ""));
  }
  const int64_t others = count_ - static_cast<int64_t>(first_.size());
  if (others > 0) absl::StrAppend(&text, ", and ", others, " more");
  return absl::Status(code, absl::StrCat(text, have_one_remedy ? remedy : ""));
}

}  // namespace catchment
