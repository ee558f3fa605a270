// Reports of the laboratory: tables for people, JSON for lab/plot_lab.py. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lab/experiments/grid.h"
#include "lab/experiments/node_study.h"

namespace coppice::lab {

struct MeasuredCell {
  Cell cell;
  CellResult result;
};

struct LabReport {
  std::string experiment;
  std::vector<std::pair<std::string, std::string>> source;  // ModelPair::Describe()
  uint64_t seed = 0;
  int sequences = 0;
  std::vector<MeasuredCell> cells;
  std::vector<SkippedCell> skipped;
  std::vector<NodeResult> nodes;
};

std::string ReportTable(const LabReport& report);
// {format_version: 2, experiment, source, seed, sequences, cells, skipped, nodes}; an estimate is
// {value, se, count}, null where nothing was counted.
std::string ReportJson(const LabReport& report);

}  // namespace coppice::lab
