// The appearance of the n-th series of a chart: colours, and without colour dashes, markers or stripes,
// distinguish them.
//
// Source of the colours: Okabe and Ito 2008, "Color Universal Design"; without yellow, which is too light on
// paper.
#ifndef CATCHMENT_CLI_REPORT_PALETTE_H_
#define CATCHMENT_CLI_REPORT_PALETTE_H_

#include <array>
#include <string>

namespace catchment {

struct Look {
  std::string color;
  std::string dashes;
  int marker = 0;   // Svg::Marker
  int pattern = 0;  // Svg::Pattern
};

inline Look LookOf(int index) {
  constexpr std::array<const char*, 7> kColors = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                  "#E69F00", "#56B4E9", "#000000"};
  constexpr std::array<const char*, 5> kDashes = {"", "7 3", "2 2.5", "8 3 2 3", "12 4"};
  return {kColors[index % kColors.size()], kDashes[index % kDashes.size()], index % 4, index % 4};
}

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_PALETTE_H_
