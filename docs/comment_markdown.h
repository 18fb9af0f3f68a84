// A comment of a .proto as Markdown.
//
// Prose is joined to paragraphs; an empty line ends one. Lines indented by two spaces or more are formulas or
// lists, and keep their breaks. Names with underscores, flags, paths and known words become code; what `link`
// knows becomes a link. Nothing else in a comment is interpreted as Markdown, except text between backquotes.
//
// Threads: pure functions.
#ifndef CATCHMENT_DOCS_COMMENT_MARKDOWN_H_
#define CATCHMENT_DOCS_COMMENT_MARKDOWN_H_

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace catchment {

struct CommentWords {
  // Returns the target of the link from a word or a path of fields ("optimizer.schedule"); empty if there is
  // none.
  std::function<std::string(const std::string& word)> link;
  // Shown as code although they look like any word ("FLOAT32").
  std::set<std::string> code;
};

// Without the comment's slashes, as protobuf's SourceLocation has it. One element a paragraph or a block,
// without a line break at its end.
std::vector<std::string> CommentMarkdown(const std::string& comment, const CommentWords& words);

}  // namespace catchment

#endif  // CATCHMENT_DOCS_COMMENT_MARKDOWN_H_
