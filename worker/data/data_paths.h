// The directories that are searched for a user's data.
#ifndef CATCHMENT_WORKER_DATA_DATA_PATHS_H_
#define CATCHMENT_WORKER_DATA_DATA_PATHS_H_

#include <string>

namespace catchment {

// Values of environment variables; empty: not set.
struct DataPaths {
  std::string catchment_data;  // $CATCHMENT_DATA, a folder with one folder for each data set
  std::string xdg_cache_home;  // $XDG_CACHE_HOME
  std::string home;            // $HOME
  // A directory that has copies of files, under their absolute paths (stage.h); empty: there are none.
  std::string staged;
};

// Returns the path of the copy of a file or directory; `path` itself if there is none.
std::string StagedPath(const DataPaths& paths, const std::string& path);

// Reads the environment; for main() and what stands in its place.
DataPaths DataPathsFromEnvironment();

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_DATA_PATHS_H_
