// What a catalogue of many items costs: its file, compiling, opening, a format, and the tokens that
// may follow a path. Items are random, each with an id and a name: `levels` tokens, each one of
// `codes` of its level, uniformly, which shares less than real items do. A line of JSON for each
// measurement.
//
//   coppice-bench-catalogue --items=1000000 --folder=/tmp
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/program.h"
#include "base/status.h"
#include "catalogue/catalogue.h"
#include "catalogue/catalogue_format.h"
#include "catalogue/item_reader.h"
#include "catalogue/vocabulary_check.h"
#include "lab/bench/model/json_line.h"
#include "tokenizer/tokenizer.h"

namespace coppice::bench {
namespace {

using catalogue::Catalogue;
using catalogue::Selection;

constexpr char kProgram[] = "coppice-bench-catalogue";
constexpr int kFirstToken = 300;  // below are those that end texts
constexpr int kRepetitions = 5;

struct BenchFlags {
  int64_t items = 1'000'000;
  int levels = 4, codes = 256;
  std::string model = "deploy/demo/wikisql-target", folder = "/tmp";
};

FlagTable BenchFlagTable(BenchFlags* flags) {
  return {
      .program = kProgram,
      .about = "Measures catalogues of random items.",
      .groups = {
          {"Items",
           {{.name = "items", .value = &flags->items, .range = {1, 1e8}, .text = "how many"},
            {.name = "levels",
             .value = &flags->levels,
             .range = {1, 8},
             .text = "tokens of an item"},
            {.name = "codes",
             .value = &flags->codes,
             .range = {1, 65536},
             .text = "values that a token can have, other ones at each level"},
            {.name = "model", .value = &flags->model, .text = "whose tokenizer has enough tokens"},
            {.name = "folder",
             .value = &flags->folder,
             .text = "where the files are made, about 150 bytes for an item"}}}}};
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double TimeOf(const std::function<void()>& work) {
  const double begin = Seconds();
  work();
  return Seconds() - begin;
}

// The median of some times.
double Median(const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < kRepetitions; ++i) times.push_back(TimeOf(work));
  std::sort(times.begin(), times.end());
  return times[kRepetitions / 2];
}

// Forgets the largest memory so far.
void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

// The largest memory since then.
double PeakMebibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

void WriteItems(const BenchFlags& flags, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  std::mt19937_64 random(1);
  std::unordered_set<uint64_t> known;
  std::string line;
  while (static_cast<int64_t>(known.size()) < flags.items) {
    uint64_t key = 0;
    std::string tokens;
    for (int level = 0; level < flags.levels; ++level) {
      const uint64_t code = random() % flags.codes;
      key = key * flags.codes + code;
      absl::StrAppend(&tokens, level == 0 ? "" : ", ", kFirstToken + level * flags.codes + code);
    }
    if (!known.insert(key).second) continue;
    file << absl::StrFormat(
        "{\"id\": \"B%08d\", \"name\": \"The collected works, volume %d\", \"tokens\": [%s]}\n",
        known.size(), known.size(), tokens);
  }
}

absl::Status Compile(const BenchFlags& flags, const std::string& items, const std::string& output) {
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(flags.model));
  catalogue::CatalogueBuilder::Options options;
  options.source = items;
  options.output = output;
  options.vocab_size = tokenizer->vocab_size();
  options.vocabulary = catalogue::VocabularyFingerprint(tokenizer::Vocabulary(*tokenizer));
  COPPICE_ASSIGN_OR_RETURN(const auto builder, catalogue::CatalogueBuilder::Make(options));
  absl::Status read;
  const double reading = TimeOf([&] {
    read = ReadItems(
        items, *tokenizer, options.end, [](int64_t) {}, builder.get());
  });
  COPPICE_RETURN_IF_ERROR(read);
  absl::StatusOr<catalogue::FileHeader> header;
  const double building = TimeOf([&] { header = builder->Write(); });
  if (!header.ok()) return header.status();
  JsonLine("compile")
      .Count("items", flags.items)
      .Number("read_s", reading)
      .Number("build_s", building)
      .Number("peak_mib", PeakMebibytes())
      .Count("nodes", static_cast<int64_t>(header->nodes))
      .Count("file_bytes", static_cast<int64_t>(header->file_bytes()))
      .Number("trie_bytes_per_node",
              static_cast<double>(header->offsets_at()) / static_cast<double>(header->nodes));
  return absl::OkStatus();
}

void MeasureFormat(const std::shared_ptr<const Catalogue>& catalogue, const std::string& name,
                   const Selection& selection, const std::vector<int64_t>& from) {
  std::shared_ptr<const OutputFormat> format;
  const double making =
      Median([&] { format = *MakeCatalogueFormat(catalogue, selection, /*ends=*/{}); });
  for (int length = 0; length < catalogue->longest(); ++length) {
    // Paths of the first `length` tokens of the items.
    std::vector<OutputFormat::State> states;
    for (const int64_t item : from) {
      const std::vector<TokenId> tokens = catalogue->Tokens(item);
      OutputFormat::State state = format->Start();
      for (int i = 0; i < length && state >= 0; ++i) state = format->Next(state, tokens[i]);
      if (state >= 0) states.push_back(state);
    }
    int64_t listed = 0;
    const auto ask = [&] {
      listed = 0;
      for (const OutputFormat::State state : states) listed += format->Allowed(state)->count;
    };
    const double first = TimeOf(ask), again = Median(ask);
    JsonLine("allowed")
        .Text("selection", name)
        .Number("make_ms", 1e3 * making)
        .Count("after", length)
        .Number("tokens", static_cast<double>(listed) / static_cast<double>(states.size()))
        .Number("first_us", 1e6 * first / static_cast<double>(states.size()))
        .Number("again_us", 1e6 * again / static_cast<double>(states.size()));
  }
}

absl::Status Measure(const BenchFlags& flags) {
  const std::string items = absl::StrCat(flags.folder, "/bench-items.jsonl");
  const std::string file = absl::StrCat(flags.folder, "/bench-items.cat");
  WriteItems(flags, items);
  ResetPeak();
  COPPICE_RETURN_IF_ERROR(Compile(flags, items, file));
  std::shared_ptr<const Catalogue> catalogue;
  absl::Status status;
  const double opening = Median([&] {
    auto opened = Catalogue::Open(file);
    status = opened.status();
    if (opened.ok()) catalogue = *opened;
  });
  COPPICE_RETURN_IF_ERROR(status);
  const double checking = TimeOf([&] { status = catalogue->Check(); });
  COPPICE_RETURN_IF_ERROR(status);
  JsonLine("open").Number("open_ms", 1e3 * opening).Number("check_s", checking);

  std::mt19937_64 random(3);
  std::vector<int64_t> some(10'000);
  for (int64_t& item : some) item = static_cast<int64_t>(random() % catalogue->items());
  std::vector<std::string> ids(some.size());
  const double id = Median([&] {
    for (size_t i = 0; i < some.size(); ++i) ids[i] = catalogue->Text(some[i]).id;
  });
  const double find = Median([&] {
    for (const std::string& text : ids) catalogue->FindId(text);
  });
  const double item_of = Median([&] {
    for (const int64_t item : some) catalogue->ItemOf(catalogue->Tokens(item));
  });
  JsonLine("items")
      .Number("text_us", 1e6 * id / static_cast<double>(some.size()))
      .Number("find_id_us", 1e6 * find / static_cast<double>(some.size()))
      .Number("tokens_and_item_of_us", 1e6 * item_of / static_cast<double>(some.size()));

  MeasureFormat(catalogue, "all", {}, some);
  std::vector<int64_t> thousand(some.begin(), some.begin() + 1000);
  MeasureFormat(catalogue, "without 1000", {{}, thousand, {}}, some);
  MeasureFormat(catalogue, "1000", {thousand, {}, {}}, thousand);
  std::remove(items.c_str());
  std::remove(file.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace coppice::bench

int main(int argc, char** argv) {
  coppice::bench::BenchFlags flags;
  coppice::ParseProgramFlags(coppice::bench::BenchFlagTable(&flags), argc, argv);
  const absl::Status status = coppice::bench::Measure(flags);
  return status.ok() ? 0 : coppice::FailProgram(coppice::bench::kProgram, status);
}
