#include "server/outputs/appended_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace catchment {
namespace {

std::string Path(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// While it lives files may have no more bytes than this, and take what fits of a record, as a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST(AppendedFileTest, NothingStaysOfALineThatDoesNotFit) {
  const auto file = AppendedFile::OpenLines(Path("full"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("first\n").ok());
  {
    const FileSizeLimit full(8);
    const absl::Status status = (*file)->Append("second\n");
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(Path("full")));
  }
  EXPECT_EQ(Read(Path("full")), "first\n");
  ASSERT_TRUE((*file)->Append("third\n").ok()) << "there is room again";
  EXPECT_EQ(Read(Path("full")), "first\nthird\n");
}

TEST(AppendedFileTest, RefusesANamedPipeAndALinkToAnotherFile) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(AppendedFile::OpenLines(Path("pipe")).status().message(),
            Path("pipe") + ": is not a regular file");
  std::ofstream(Path("mine")) << "not a line";
  ASSERT_EQ(symlink(Path("mine").c_str(), Path("link").c_str()), 0);
  EXPECT_EQ(AppendedFile::OpenLines(Path("link")).status().message(),
            Path("link") + ": is not a regular file");
  EXPECT_EQ(Read(Path("mine")), "not a line");
}

TEST(AppendedFileTest, LinesOfAnEarlierProcessStayButForOneThatItDidNotFinish) {
  const std::string long_line = std::string(10'000, 'x');  // several pieces are read to find its beginning
  for (const std::string& before : {std::string(), std::string("a\nb\n"), "a\n" + long_line + "\n"}) {
    for (const std::string& unfinished : {std::string(), std::string("{\"samples\""), long_line}) {
      std::ofstream(Path("lines")) << before << unfinished;
      const auto file = AppendedFile::OpenLines(Path("lines"));
      ASSERT_TRUE(file.ok()) << file.status();
      ASSERT_TRUE((*file)->Append("next\n").ok());
      EXPECT_EQ(Read(Path("lines")), before + "next\n");
    }
  }
}

TEST(AppendedFileTest, FileThatCannotBeMadeIsNamed) {
  const absl::Status status = AppendedFile::OpenLines("/nowhere/lines").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/nowhere/lines"));
}

}  // namespace
}  // namespace catchment
