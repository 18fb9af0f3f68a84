// Finds the name that a misspelled one probably means.
#ifndef CATCHMENT_COMMON_BASE_NEAREST_NAME_H_
#define CATCHMENT_COMMON_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace catchment {

// Returns the candidate with the fewest edits to `name`, ignoring case; empty if none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_NEAREST_NAME_H_
