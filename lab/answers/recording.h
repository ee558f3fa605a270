// A recording of answers to requests, as a file of JSON lines. The first line names the models;
// each other line has one request and its answer. Thread-compatible.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lab/answers/request.h"

namespace coppice::answers {

struct RecordedAnswer {
  AnswerRequest request;
  nlohmann::json answer;  // AnswerToJson
  std::string refusal;    // why it was refused; for people, not compared
};

struct Recording {
  std::string target, draft;  // FolderFingerprint
  std::string kernels;        // instruction set, KernelTargetName()
  std::vector<RecordedAnswer> answers;
};

// FNV-1a of config.json and of every checkpoint file, or of a GGUF file, 16 hexadecimal digits.
// Errors name the file.
absl::StatusOr<std::string> FolderFingerprint(const std::string& dir);

// Errors name the file and the line.
absl::Status WriteRecording(const Recording& recording, const std::string& path);
absl::StatusOr<Recording> ReadRecording(const std::string& path);

// The first difference between two answers: in tokens, else in scores, else in rounds.
struct Difference {
  std::string field;  // "hypotheses.tokens"; empty: the answers are the same
  std::string text;   // "hypotheses[0].tokens[5]: recorded 17, now 23"
};
// score_tolerance: how much scores may differ, nats; 0 = compare every bit.
Difference FirstDifference(const nlohmann::json& recorded, const nlohmann::json& now,
                           double score_tolerance);

}  // namespace coppice::answers
