#include "lab/golden/golden_file.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lab/golden/model_file.h"
#include "lab/golden/runners.h"

namespace coppice::golden {
namespace {

struct Algorithm {
  absl::string_view name;  // the start of the file's field `algorithm`
  CaseRunner run;
};

// Prefixes of the field `algorithm`, without the section numbers that follow.
constexpr Algorithm kAlgorithms[] = {
    {"counter-based RNG", RunRng},
    {"HashLM test model", RunHashLm},
    {"sampling parameters ROW and JOINT", RunSampling},
    {"beam sampling one-step distribution", RunBeamSampling},
    {"exact two-layer distribution of beam sampling", RunBeamDistributionTwoLayers},
    {"vanilla speculative decoding", RunSpecDecode},
    {"recursive rejection sampling with replacement", RunRrsIid},
    {"recursive rejection sampling without replacement", RunRrsWithoutReplacement},
    {"K-SEQ", RunKSeq},
    {"greedy multi-draft and SpecHub", RunGreedySpecHub},
    {"Luce-OT verification of iid drafts", RunLuceOt},
    {"SpecInfer-style tree", RunTreeBlockLengths},
    {"block verification", RunBlockVerify},
    {"DSBD layers 2+: removed parents", RunDsbdSurvivors},
    {"DSBD layer (", RunDsbdLayer},
    {"dynamic width of a DSBD layer", RunDsbdWidth},
    {"WOR-draft verification with reuse", RunDsbdWorLayer},
    {"seeded end-to-end iterations of the rejection verifiers", RunSeededRejection},
    {"Joint Gumbel coupling", RunJointGumbelCoupling},
    {"Beam sampling by Gumbel coupling", RunGumbelCoupling},
    {"Gumbel top-k beam sampling without replacement", RunGumbelTopK},
    {"speculative Gumbel top-k", RunGumbelTopKSpec},
    {"deterministic beam search and its speculative form", RunSpecSearch},
    {"complete decodes with EOS", RunEosDecode},
    {"options of beam search", RunSearchOptions},
    {"speculative decodes with EOS", RunEosCertificate},
    {"optimal acceptance calculators", RunAlphaStar},
    {"acceptance calculators on HashLM rows", RunAlphaStarLarge},
    {"MJSD one iteration", RunMjsdMjgd},
    {"BiLD", RunBild},
    {"length normalisation, perplexity, final pick", RunFinalSelection},
};

// nullptr: not known.
const Algorithm* FindAlgorithm(const std::string& algorithm) {
  for (const Algorithm& known : kAlgorithms) {
    if (algorithm.compare(0, known.name.size(), known.name.data(), known.name.size()) == 0)
      return &known;
  }
  return nullptr;
}

// Malformed cases fail with the message of the JSON reader.
CaseCheck RunCase(CaseRunner run, const Json& item, std::string* error) {
  CaseCheck check;
  try {
    run(item.at("inputs"), item.at("expected"), &check);
  } catch (const std::exception& e) {
    *error = absl::StrCat("malformed case: ", e.what());
  }
  return check;
}

void Report(absl::string_view outcome, const std::string& file, const std::string& name,
            const std::string& reason) {
  std::cout << outcome << "  " << file << "  " << name << (reason.empty() ? "" : ": ") << reason
            << "\n";
}

std::string NameOf(const Json& item) {
  const bool named = item.is_object() && item.contains("name") && item["name"].is_string();
  return named ? item["name"].get<std::string>() : "unnamed";
}

Tally Refuse(const std::string& file, const std::string& reason) {
  Report("FAILED ", file, "refused", reason);
  return {0, 1};
}

// `seen` receives the algorithm of the file, "" for that of a whole model.
Tally RunFile(const std::string& path, std::set<absl::string_view>* seen) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  std::ifstream stream(path);
  if (!stream) return Refuse(path, "cannot be read");
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Refuse(path, "is not a JSON object");
  if (IsModelFile(json)) {
    seen->insert("");
    return RunModelFile(json, path);
  }
  if (!json.contains("algorithm") || !json["algorithm"].is_string()) {
    return Refuse(path, "names no algorithm");
  }
  const std::string algorithm = json["algorithm"].get<std::string>();
  const Algorithm* const known = FindAlgorithm(algorithm);
  if (known == nullptr) return Refuse(path, absl::StrCat("unknown algorithm '", algorithm, "'"));
  if (json.value("format_version", 0) != 1) return Refuse(path, "format_version is not 1");
  if (!json.contains("cases") || !json["cases"].is_array() || json["cases"].empty()) {
    return Refuse(path, "has no cases");
  }
  seen->insert(known->name);
  Tally tally;
  for (const Json& item : json["cases"]) {
    std::string error;
    const CaseCheck check = RunCase(known->run, item, &error);
    Count(file, NameOf(item), error, check, &tally);
  }
  return tally;
}

}  // namespace

Tally RunGoldenFile(const std::string& path) {
  std::set<absl::string_view> seen;
  return RunFile(path, &seen);
}

Tally RunGoldenDirectory(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  }
  if (error) return Refuse(directory, error.message());
  std::sort(files.begin(), files.end());
  std::set<absl::string_view> seen;
  Tally tally;
  const auto add = [&tally](const Tally& more) {
    tally.passed += more.passed;
    tally.failed += more.failed;
  };
  for (const std::string& file : files) add(RunFile(file, &seen));
  for (const Algorithm& known : kAlgorithms) {
    if (seen.count(known.name) == 0)
      add(Refuse(directory, absl::StrCat("no file tests '", known.name, "'")));
  }
  if (seen.count("") == 0) add(Refuse(directory, "no file tests a whole model"));
  return tally;
}

void Count(const std::string& file, const std::string& name, std::string error,
           const CaseCheck& check, Tally* tally) {
  if (error.empty()) error = check.failure();
  if (!error.empty()) {
    ++tally->failed;
    Report("FAILED ", file, name, error);
  } else {
    ++tally->passed;
    Report("passed ", file, name, "");
  }
}

}  // namespace coppice::golden
