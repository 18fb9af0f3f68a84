// Where the parameters lie: which server has which part, in how many blocks, and which tensors are split.
#ifndef CATCHMENT_CLI_PLACEMENT_H_
#define CATCHMENT_CLI_PLACEMENT_H_

#include <string>
#include <vector>

#include "cli/job_facts.h"
#include "common/parameter_layout.h"

namespace catchment {

// A server's values of one tensor, counted from the tensor's first.
struct TensorPart {
  int server = 0;
  Range values;
};

// In order; one, unless the tensor is split.
std::vector<TensorPart> PartsOf(const ParameterLayout& layout, int tensor);

// 0.01: the server has 1 % more bytes than if all had the same.
double AgainstEven(const ParameterLayout& layout, int server);

// Of all servers together: the messages of a push, or of the answers to a pull.
int64_t CountBlocks(const ParameterLayout& layout);
// If blocks were of `block_size` values, cut anywhere.
int64_t CountBlocks(const ParameterLayout& layout, int64_t block_size);

std::string ExplainPlacement(const JobFacts& facts);

// The servers that a table shows: all, or of many the first and the last ones with a -1 between them.
std::vector<int> ShownServers(int servers);

}  // namespace catchment

#endif  // CATCHMENT_CLI_PLACEMENT_H_
