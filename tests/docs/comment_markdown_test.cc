#include "docs/comment_markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Markdown(const std::string& comment) {
  CommentWords words;
  words.link = [](const std::string& word) { return word == "optimizer.schedule" ? "#schedule" : ""; };
  words.code = {"FLOAT32"};
  return CommentMarkdown(comment, words);
}

TEST(CommentMarkdownTest, EmptyTextStaysEmpty) { EXPECT_THAT(Markdown(""), IsEmpty()); }

TEST(CommentMarkdownTest, JoinsLinesToParagraphs) {
  EXPECT_THAT(Markdown(" One sentence,\n over two lines.\n\n Another.\n"),
              ElementsAre("One sentence, over two lines.", "Another."));
}

TEST(CommentMarkdownTest, KeepsTheLinesOfFormulas) {
  EXPECT_THAT(Markdown(" SGD:\n   v = mu * v + g\n     w -= eta * v\n Not always.\n"),
              ElementsAre("SGD:", "```text\nv = mu * v + g\n  w -= eta * v\n```", "Not always."));
}

TEST(CommentMarkdownTest, EscapesWhatMarkdownWouldTake) {
  EXPECT_THAT(Markdown(" g*g, 'a' or '_', x < y\n"), ElementsAre("g\\*g, 'a' or '\\_', x \\< y"));
}

TEST(CommentMarkdownTest, MarksNamesAndLinksPaths) {
  EXPECT_THAT(
      Markdown(
          " With push_period, `rate` and FLOAT32, as optimizer.schedule says; --threads. Not e.g. this.\n"),
      ElementsAre("With `push_period`, `rate` and `FLOAT32`, as [`optimizer.schedule`](#schedule) "
                  "says; `--threads`. Not e.g. this."));
}

TEST(CommentMarkdownTest, LinksPapersAndPages) {
  EXPECT_THAT(
      Markdown(" See arXiv:1412.6651, docs/codecs.md and $HOME/x.\n"),
      ElementsAre("See [arXiv:1412.6651](https://arxiv.org/abs/1412.6651), [docs/codecs.md](codecs.md) and "
                  "`$HOME/x`."));
}

}  // namespace
}  // namespace catchment
