// Compiled when a program is linked. Bazel includes headers in front of it: that of a build with --stamp has
// --embed_label and the commit that common/bazel/workspace_status.sh has printed; others have "redacted".
#include <string_view>

#ifndef BUILD_EMBED_LABEL
#define BUILD_EMBED_LABEL ""
#endif
#ifndef BUILD_SCM_REVISION
#define BUILD_SCM_REVISION ""
#endif

extern const std::string_view kVersionCommit;
const std::string_view kVersionCommit =
    sizeof(BUILD_EMBED_LABEL) > 1 ? BUILD_EMBED_LABEL : BUILD_SCM_REVISION;
