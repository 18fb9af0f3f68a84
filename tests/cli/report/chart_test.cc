#include "cli/report/chart.h"

#include <cstdlib>
#include <regex>

#include "cli/report/markup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Label {
  double x = 0;
  std::string anchor;
  std::string text;
};

// Returns the horizontal text of a picture that is a number.
std::vector<Label> Numbers(const std::string& picture) {
  const std::regex text("<text x=\"([0-9.]+)\" y=\"[0-9.]+\" text-anchor=\"([a-z]+)\"[^>]*>([0-9,]+)</text>");
  std::vector<Label> labels;
  for (std::sregex_iterator it(picture.begin(), picture.end(), text), end; it != end; ++it)
    labels.push_back({std::atof((*it)[1].str().c_str()), (*it)[2], (*it)[3]});
  return labels;
}

LineChart MadeChart(double x_high, double y_high) {
  LineChart chart;
  chart.title = "made";
  chart.y_label = "samples a second";
  chart.x_high = x_high;
  chart.y_high = y_high;
  chart.curves = {{"a", LookOf(0), {{0, 0, 0, 0}, {x_high, y_high, y_high, y_high}}, false}};
  return chart;
}

TEST(LineChart, LabelsAreWithinThePictureAndBesideTheNameOfTheAxis) {
  for (const double high : {6.0, 60000.0, 60000000.0, 6e12}) {
    const std::string picture = Draw(MadeChart(high, high));
    ASSERT_THAT(picture, HasSubstr("viewBox=\"0 0 480 "));
    ASSERT_THAT(picture, HasSubstr("translate(14.0 ")) << "the name of the y axis ends at 14";
    const std::vector<Label> labels = Numbers(picture);
    ASSERT_THAT(labels, SizeIs(testing::Ge(8u)));
    for (const Label& label : labels) {
      const double width = TextWidth(label.text, 11);
      if (label.anchor == "end") {
        EXPECT_GT(label.x - width, 14) << label.text;
      } else {
        EXPECT_LE(label.x + width / 2, 480.1) << label.text;
      }
    }
  }
}

TEST(HtmlCommand, HasAFlagInEachLine) {
  EXPECT_EQ(HtmlCommand("catchment compare job --set='name: \"a --b\"' --program='a'\\'' --c' --seeds=1"),
            "<pre class=\"command\">catchment compare job \\\n"
            "    --set='name: &quot;a --b&quot;' \\\n"
            "    --program='a'\\'' --c' \\\n"
            "    --seeds=1</pre>\n");
}

TEST(HtmlTable, HeadsNameTheirColumns) {
  EXPECT_THAT(HtmlTable({{"a", "b"}, {"1", "2"}}),
              HasSubstr("<tr><th scope=\"col\" class=\"left\">a</th><th scope=\"col\">b</th></tr>\n"
                        "<tr><td class=\"left\">1</td><td>2</td></tr>"));
}

}  // namespace
}  // namespace catchment
