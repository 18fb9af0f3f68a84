// Compiled when a program is linked. Bazel includes a header in front of it that contains the --embed_label
// in builds with --stamp, and "redacted" or nothing in others.
#include <string_view>

#ifndef BUILD_EMBED_LABEL
#define BUILD_EMBED_LABEL ""
#endif

extern const std::string_view kVersionCommit;
const std::string_view kVersionCommit = BUILD_EMBED_LABEL;
