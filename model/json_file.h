// Typed access to the fields of a JSON object in a file. Every error names the file, the field and
// what was expected. Used by model_config.cc and checkpoint.cc. Immutable after ReadFile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace coppice::model {

class JsonFile {
 public:
  // InvalidArgument: not JSON, or not an object. Errors of ReadRegularFile.
  static absl::StatusOr<JsonFile> ReadFile(const std::string& path, uint64_t most_bytes);
  static absl::StatusOr<JsonFile> Parse(const std::string& path, const std::string& text);

  // A field that is null counts as absent everywhere.
  bool Has(const std::string& name) const;
  bool IsNull(const std::string& name) const;  // written as null, not absent
  absl::StatusOr<int64_t> Int(const std::string& name, int64_t low, int64_t high) const;
  absl::StatusOr<int64_t> IntOr(const std::string& name, int64_t low, int64_t high,
                                int64_t absent) const;
  absl::StatusOr<double> PositiveNumber(const std::string& name) const;
  absl::StatusOr<double> PositiveNumberOr(const std::string& name, double absent) const;
  absl::StatusOr<std::vector<double>> PositiveNumbers(const std::string& name) const;
  absl::StatusOr<bool> BoolOr(const std::string& name, bool absent) const;
  absl::StatusOr<std::string> String(const std::string& name) const;
  absl::StatusOr<std::string> StringOr(const std::string& name, const std::string& absent) const;
  absl::StatusOr<std::vector<std::string>> StringsOr(
      const std::string& name) const;  // absent: empty
  // One integer or a list of them; absent: empty.
  absl::StatusOr<std::vector<int64_t>> IntsOr(const std::string& name, int64_t low,
                                              int64_t high) const;
  // The fields of a nested object, named "outer.inner" in errors.
  absl::StatusOr<JsonFile> Object(const std::string& name) const;
  std::vector<std::string> names() const;

  // "PATH: FIELD: what".
  absl::Status Error(const std::string& name, const std::string& what) const;

 private:
  JsonFile(std::string path, std::string prefix, std::shared_ptr<const nlohmann::json> object);
  const nlohmann::json* Find(const std::string& name) const;  // null when absent
  absl::Status Mismatch(const std::string& name, const std::string& expected) const;

  std::string path_;
  std::string prefix_;  // "" or "outer."
  std::shared_ptr<const nlohmann::json> object_;
};

}  // namespace coppice::model
