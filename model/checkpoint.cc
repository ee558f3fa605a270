#include "model/checkpoint.h"

#include <filesystem>
#include <utility>

#include "base/regular_file.h"
#include "base/status.h"
#include "model/gguf_checkpoint.h"
#include "model/json_file.h"
#include "model/quantisation.h"
#include "model/quantised_checkpoint.h"
#include "model/safetensors_checkpoint.h"
#include "model_files/model_files.h"

namespace coppice::model {
namespace {

// A folder without config.json is refused where its configuration is read.
absl::StatusOr<Quantisation> QuantisationOf(const std::string& dir) {
  const std::string path = dir + "/config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Quantisation{};
  COPPICE_ASSIGN_OR_RETURN(const JsonFile config, JsonFile::ReadFile(path, kMostSettingsBytes));
  return ReadQuantisation(config);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& model) {
  if (model_files::IsModelFile(model)) return OpenGgufCheckpoint(model);
  COPPICE_ASSIGN_OR_RETURN(const Quantisation quantisation, QuantisationOf(model));
  COPPICE_ASSIGN_OR_RETURN(auto stored, OpenSafetensorsCheckpoint(model));
  if (quantisation.layout == QuantLayout::kPlain) return stored;
  return MakeQuantisedCheckpoint(std::move(stored), quantisation);
}

}  // namespace coppice::model
