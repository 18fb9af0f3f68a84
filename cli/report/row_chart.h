// Charts of one row for each algorithm and number of workers: a mean with its spread, or a bar made of parts.
#ifndef CATCHMENT_CLI_REPORT_ROW_CHART_H_
#define CATCHMENT_CLI_REPORT_ROW_CHART_H_

#include <string>
#include <vector>

#include "cli/report/axis.h"
#include "cli/report/palette.h"
#include "cli/report/statistics.h"

namespace catchment {

struct ChartRow {
  std::string group;  // a heading stands above the first of each
  std::string name;
  std::string note;  // right of what is drawn
  // One of both.
  Spread spread;              // n 0: nothing is drawn but the note
  Look look;                  // of the mean's marker
  std::vector<double> parts;  // of a bar, from the left; nothing below 0
};

struct RowChart {
  std::string title;
  std::string x_label;
  Unit unit = Unit::kNumber;
  double high = 1;                      // the axis goes from 0 to this
  std::vector<std::string> part_names;  // of bars, for the legend
  std::vector<ChartRow> rows;
};

std::string Draw(const RowChart& chart);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_ROW_CHART_H_
