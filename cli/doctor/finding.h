#ifndef CATCHMENT_CLI_DOCTOR_FINDING_H_
#define CATCHMENT_CLI_DOCTOR_FINDING_H_

#include <string>
#include <utility>

namespace catchment {

enum class Verdict { kOk, kWarn, kFail };

// The result of a check.
struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string text;
  std::string remedy = "";  // a sentence; empty if and only if the verdict is kOk
};

inline Finding Ok(std::string text) { return {Verdict::kOk, std::move(text)}; }
inline Finding Warn(std::string text, std::string remedy) {
  return {Verdict::kWarn, std::move(text), std::move(remedy)};
}
inline Finding Fail(std::string text, std::string remedy) {
  return {Verdict::kFail, std::move(text), std::move(remedy)};
}

}  // namespace catchment

#endif  // CATCHMENT_CLI_DOCTOR_FINDING_H_
