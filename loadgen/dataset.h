// The datasets without times: JSON lines of the user's own, and the questions of Spec-Bench. Called
// by main before the run. Pure, except for reading the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/prompt.h"

namespace coppice::loadgen {

// Reads a file of JSON lines {prompt or messages, output_tokens?, seed?, body?}; other fields are
// ignored. Errors name path and line.
absl::StatusOr<std::vector<Prompt>> ReadCustomDataset(const std::string& path);

// Reads question.jsonl of Spec-Bench (Xia et al. 2024, "Unlocking efficiency in large language
// model inference"): JSON lines with turns, the user's texts. all_turns: later ones too.
absl::StatusOr<std::vector<Prompt>> ReadSpecBench(const std::string& path, bool all_turns);

// `count` prompts, 0 = all. A smaller count: at even distances, since files are often ordered by
// subject. A larger count: repeated from the start.
std::vector<Prompt> TakePrompts(std::vector<Prompt> prompts, int count);

}  // namespace coppice::loadgen
