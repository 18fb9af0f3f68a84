// Which name was meant.
#ifndef CATCHMENT_COMMON_NEAREST_NAME_H_
#define CATCHMENT_COMMON_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace catchment {

// The candidate that needs the fewest edits to become `name`, in any case of letters; empty when none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NEAREST_NAME_H_
