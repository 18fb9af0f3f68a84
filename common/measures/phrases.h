// The measures of a job in words, for the tables that people read.
//
// A phrase has parts, separated by "|", with measures in braces: "{samples:sample} trained|loss {train_loss}"
// becomes "1,200 samples trained, loss 0.31". Numbers are written by their unit, or as the number of a noun.
// A part without one of its measures is left out; one that begins with ";" has no comma before it.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_MEASURES_PHRASES_H_
#define CATCHMENT_COMMON_MEASURES_PHRASES_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/types/span.h"

namespace catchment {

// Returns the phrase with the values of `facts`; "" if they are missing, or null. `zeros`: also parts with
// measures that are 0.
std::string Phrase(const std::string& phrase, const nlohmann::ordered_json& facts, bool zeros = true);

// A row of a table.
struct PhraseRow {
  const char* name;
  const char* phrase;
  bool unless_zero = false;  // left out if all of its numbers are 0
};
// Returns the phrase of the row, or "".
std::string Phrase(const PhraseRow& row, const nlohmann::ordered_json& facts);

// The rows of `catchment status`, and of the table of a summary, the most important ones and all
// (measures.cc).
absl::Span<const PhraseRow> StatusRows();
absl::Span<const PhraseRow> ResultRows();
absl::Span<const PhraseRow> SummaryRows();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_PHRASES_H_
