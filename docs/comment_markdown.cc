#include "docs/comment_markdown.h"

#include <algorithm>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace catchment {
namespace {

// Matches everything except plain prose. Groups: 1 existing code, 2 an arXiv number, 3 a path of files, 4 a
// flag or a variable, 5 a word or a path of fields, 6 a character that is special in Markdown.
const std::regex& Special() {
  static const auto* const special = new std::regex(
      "(`[^`]*`)"
      "|arXiv:(\\d{4}\\.\\d{4,5})"
      "|((?:~|\\$[A-Z_]+|docs|examples|common|proto)/[\\w./-]*\\w)"
      "|(--[a-z_]+|\\$[A-Z_]+)"
      "|([A-Za-z_]\\w*(?:\\.[a-z_]\\w*)*)"
      "|([*_<>])");
  return *special;
}

std::string Code(const std::string& text) { return absl::StrCat("`", text, "`"); }

// Links to a file, relative to docs/, which contains the page.
std::string File(const std::string& path) {
  if (path == "docs/algorithms") return "[docs/algorithms](algorithms/README.md)";
  if (absl::StartsWith(path, "docs/")) return absl::StrCat("[", path, "](", path.substr(5), ")");
  if (absl::StartsWith(path, "examples/")) return absl::StrCat("[", path, "](../", path, ")");
  return Code(path);
}

std::string Word(const std::string& word, const CommentWords& words) {
  if (word == "_") return "\\_";
  const std::string target = words.link(word);
  if (!target.empty()) return absl::StrCat("[", Code(word), "](", target, ")");
  const bool is_code = absl::StrContains(word, '_') || words.code.count(word) > 0;
  return is_code ? Code(word) : word;
}

std::string Mark(const std::smatch& match, const CommentWords& words) {
  if (match[1].matched) return match[1];
  if (match[2].matched)
    return absl::StrCat("[arXiv:", match.str(2), "](https://arxiv.org/abs/", match.str(2), ")");
  if (match[3].matched) return File(match[3]);
  if (match[4].matched) return Code(match[4]);
  if (match[5].matched) return Word(match[5], words);
  return absl::StrCat("\\", match.str(6));
}

std::string Prose(const std::string& text, const CommentWords& words) {
  std::string out;
  auto end = text.begin();
  for (std::sregex_iterator it(text.begin(), text.end(), Special()), last; it != last; ++it) {
    out.append(end, text.begin() + it->position()).append(Mark(*it, words));
    end = text.begin() + it->position() + it->length();
  }
  return out.append(end, text.end());
}

// Without the indentation that all lines have.
std::string Block(const std::vector<std::string>& lines) {
  size_t indent = std::string::npos;
  for (const std::string& line : lines) indent = std::min(indent, line.find_first_not_of(' '));
  std::string out = "```text\n";
  for (const std::string& line : lines) absl::StrAppend(&out, line.substr(indent), "\n");
  return out + "```";
}

enum class Kind { kNothing, kProse, kBlock };

Kind KindOf(absl::string_view line) {
  if (line.empty()) return Kind::kNothing;
  return absl::StartsWith(line, "  ") ? Kind::kBlock : Kind::kProse;
}

}  // namespace

std::vector<std::string> CommentMarkdown(const std::string& comment, const CommentWords& words) {
  std::vector<std::string> out, part;
  Kind kind = Kind::kNothing;
  const auto flush = [&] {
    if (kind == Kind::kProse) out.push_back(Prose(absl::StrJoin(part, " "), words));
    if (kind == Kind::kBlock) out.push_back(Block(part));
    part.clear();
  };
  for (absl::string_view line : absl::StrSplit(comment, '\n')) {
    absl::ConsumePrefix(&line, " ");
    line = absl::StripTrailingAsciiWhitespace(line);
    if (KindOf(line) != kind) flush();
    kind = KindOf(line);
    if (kind != Kind::kNothing) part.emplace_back(line);
  }
  flush();
  return out;
}

}  // namespace catchment
