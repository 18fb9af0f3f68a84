// Returns from a function as soon as a call fails, where the caller's error is that of the call.
//
//   absl::StatusOr<Model> ReadModel(const std::string& path) {
//     RETURN_IF_ERROR(CheckName(path));
//     ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
//     return ParseModel(text);
//   }
//
// The function returns absl::Status, or absl::StatusOr of any type. Write the condition out where something
// has to happen before the return, or where the error gets another text.
#ifndef CATCHMENT_COMMON_BASE_STATUS_MACROS_H_
#define CATCHMENT_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates an expression of type absl::Status once, and returns its value from the function unless it is OK.
#define RETURN_IF_ERROR(...)                                                                            \
  do {                                                                                                  \
    if (absl::Status catchment_status = (__VA_ARGS__); !catchment_status.ok()) return catchment_status; \
  } while (false)

// Evaluates an expression of type absl::StatusOr<T> once. Returns its status from the function unless it is
// OK, and moves its value to `target` otherwise: a declaration, which lives as long as the block around it,
// or something to assign to. `target` must not contain a comma; write `auto` for a type that does. The macro
// is more than one statement: put braces around it below an `if` or a loop.
#define ASSIGN_OR_RETURN(target, ...) \
  CATCHMENT_ASSIGN_OR_RETURN(CATCHMENT_STATUS_NAME(catchment_result_, __LINE__), target, __VA_ARGS__)

#define CATCHMENT_ASSIGN_OR_RETURN(result, target, ...) \
  auto result = (__VA_ARGS__);                          \
  if (!result.ok()) return std::move(result).status();  \
  target = *std::move(result)

// Joins two names after the second has been expanded.
#define CATCHMENT_STATUS_NAME(prefix, line) CATCHMENT_STATUS_JOIN(prefix, line)
#define CATCHMENT_STATUS_JOIN(prefix, line) prefix##line

#endif  // CATCHMENT_COMMON_BASE_STATUS_MACROS_H_
