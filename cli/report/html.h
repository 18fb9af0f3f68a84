// Pieces of an HTML page.
#ifndef CATCHMENT_CLI_REPORT_HTML_H_
#define CATCHMENT_CLI_REPORT_HTML_H_

#include <string>
#include <vector>

namespace catchment {

// The first row is the head; cells are text. The first `left` columns are aligned to the left, the others to
// the right.
std::string HtmlTable(const std::vector<std::vector<std::string>>& rows, size_t left = 1);

std::string HtmlParagraph(const std::string& text);

// Pictures beside each other where there is room; empty ones are left out.
std::string HtmlFigure(const std::vector<std::string>& pictures, const std::string& caption);

std::string HtmlPage(const std::string& title, const std::string& body);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_HTML_H_
