#include "catalogue/catalogue_tool.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/program.h"
#include "base/status.h"
#include "catalogue/catalogue.h"
#include "catalogue/catalogue_builder.h"
#include "catalogue/item_reader.h"
#include "catalogue/vocabulary_check.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace coppice::catalogue {
namespace {

constexpr char kProgram[] = "coppice-catalogue";
constexpr char kUsage[] =
    "Compiles the items that a request may ask for to a catalogue, and looks at one. Items are a "
    "line each: token ids separated by blanks, or a JSON object with \"id\", \"name\" and "
    "\"tokens\" or \"text\".\n\n"
    "  coppice-catalogue compile --items=FILE --model=FOLDER --output=FILE\n"
    "  coppice-catalogue show FILE\n"
    "  coppice-catalogue check FILE [--model=FOLDER]";
constexpr int64_t kShownItems = 3;

struct ToolFlags {
  std::string items, model, output, end = "none";
};

FlagTable ToolFlagTable(const std::string& command, ToolFlags* flags) {
  return {
      .program = kProgram,
      .about = kUsage,
      .groups = {{"Every command",
                  {{.name = "model",
                    .value = &flags->model,
                    .text = "folder or GGUF file of the model that serves the catalogue"}}},
                 {"compile",
                  {{.name = "items",
                    .value = &flags->items,
                    .text = "file of the items, one in each line"},
                   {.name = "output",
                    .value = &flags->output,
                    .text = "file of the catalogue; replaced when the new one is whole"},
                   {.name = "end",
                    .value = &flags->end,
                    .words = {"none", "stop"},
                    .text = "what follows an item: nothing, or an id that ends a text and whose "
                            "probability counts"}}}},
      .check = [command, flags](FlagFaults* faults) {
        const bool compiles = command == "compile";
        if (compiles && flags->model.empty()) faults->Add("model", "is missing");
        if (compiles && flags->items.empty()) faults->Add("items", "is missing");
        if (compiles && flags->output.empty()) faults->Add("output", "is missing");
        if (!compiles && !flags->items.empty()) faults->Add("items", "is only for compile");
        if (!compiles && !flags->output.empty()) faults->Add("output", "is only for compile");
      }};
}

// One line that is rewritten on a terminal, a line for each report elsewhere.
void Report(const std::string& doing, bool last = false) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  std::fprintf(stderr, "%s%s: %s%s%s", terminal ? "\r" : "", kProgram, doing.c_str(),
               terminal ? "\x1b[K" : "", terminal && !last ? "" : "\n");
}

absl::Status Compile(const ToolFlags& flags) {
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(flags.model));
  CatalogueBuilder::Options options;
  options.source = flags.items;
  options.output = flags.output;
  options.vocab_size = tokenizer->vocab_size();
  options.vocabulary = VocabularyFingerprint(tokenizer::Vocabulary(*tokenizer));
  COPPICE_ASSIGN_OR_RETURN(options.end, ParseItemEnd(flags.end));
  options.progress = [](const std::string& doing) { Report(doing); };
  COPPICE_ASSIGN_OR_RETURN(const auto builder, CatalogueBuilder::Make(options));
  const auto progress = [](int64_t items) { Report(absl::StrCat(items, " items read")); };
  COPPICE_RETURN_IF_ERROR(ReadItems(flags.items, *tokenizer, options.end, progress, builder.get()));
  COPPICE_ASSIGN_OR_RETURN(const FileHeader header, builder->Write());
  Report(absl::StrFormat("%d items, %d nodes, %d bytes: %s", header.items, header.nodes,
                         header.file_bytes(), flags.output),
         /*last=*/true);
  return absl::OkStatus();
}

void Show(const Catalogue& catalogue) {
  const FileHeader& header = catalogue.header();
  absl::PrintF("%s\n  %d items of at most %d tokens, followed by %s\n", catalogue.path(),
               catalogue.items(), catalogue.longest(),
               catalogue.end() == ItemEnd::kNone ? "nothing" : "a stop id");
  absl::PrintF("  %d nodes, %.1f bytes each; %d bytes in all\n", header.nodes,
               static_cast<double>(header.offsets_at()) / static_cast<double>(header.nodes),
               header.file_bytes());
  absl::PrintF("  fingerprint %016x, of the tokenizer %016x with %d tokens\n",
               catalogue.fingerprint(), catalogue.vocabulary(), catalogue.vocab_size());
  for (int64_t item = 0; item < std::min(catalogue.items(), kShownItems); ++item) {
    absl::PrintF("  item %d: %s, \"%s\", tokens %s\n", item, catalogue.Id(item),
                 catalogue.Name(item), absl::StrJoin(catalogue.Tokens(item), " "));
  }
}

absl::Status ShowOrCheck(bool shows, const std::string& path, const ToolFlags& flags) {
  COPPICE_ASSIGN_OR_RETURN(const auto catalogue, Catalogue::Open(path));
  if (!flags.model.empty()) {
    COPPICE_ASSIGN_OR_RETURN(const auto vocabulary, tokenizer::Vocabulary::Load(flags.model));
    COPPICE_RETURN_IF_ERROR(CheckVocabulary(*catalogue, *vocabulary, flags.model));
  }
  if (shows) {
    Show(*catalogue);
    return absl::OkStatus();
  }
  COPPICE_RETURN_IF_ERROR(catalogue->Check());
  absl::PrintF("%s: %d items, whole\n", path, catalogue->items());
  return absl::OkStatus();
}

}  // namespace

int CatalogueMain(int argc, char** argv) {
  const auto take_word = [&]() -> std::string {
    if (argc < 2 || argv[1][0] == '-') return "";
    const std::string word = argv[1];
    argv[1] = argv[0];
    --argc, ++argv;
    return word;
  };
  const std::string command = take_word();
  const bool opens = command == "show" || command == "check";
  const std::string file = opens ? take_word() : "";
  ToolFlags flags;
  ParseProgramFlags(ToolFlagTable(command, &flags), argc, argv);
  if (command != "compile" && file.empty()) {
    FailProgram(kProgram, absl::InvalidArgumentError(
                              opens ? absl::StrCat(command, ": expected a file")
                                    : absl::StrCat("'", command,
                                                   "', expected compile, show or check first")));
    return 2;
  }
  const absl::Status status = opens ? ShowOrCheck(command == "show", file, flags) : Compile(flags);
  return status.ok() ? 0 : FailProgram(kProgram, status);
}

}  // namespace coppice::catalogue
