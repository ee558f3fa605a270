// Any bytes as a catalogue: refused in one readable line, or opened; then every number that the
// library gives is one of the catalogue's, and a file that passes its check finds every item. And
// any bytes as items: refused in one line, or compiled to a catalogue that is whole. The first byte
// says which. fuzz.sh runs it with libFuzzer; a normal test runs samples.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "catalogue/catalogue.h"
#include "catalogue/catalogue_format.h"
#include "catalogue/content_hash.h"
#include "catalogue/item_reader.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/testing/fuzz_require.h"
#include "tests/testing/temp_dir.h"

namespace coppice::catalogue {
namespace {

using test::Require;

void CheckRefusal(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument, "refused as " + status.ToString());
  Require(status.message().size() < 1000, "the message of a refusal is too long");
  for (const char c : status.message()) {
    Require(c >= ' ' && c <= '~',
            "the message of a refusal cannot be printed: " + absl::CHexEscape(status.message()));
  }
}

// A header and hashes that are right about the rest, so that changes of the trie get behind them.
std::string Sealed(std::string bytes) {
  FileHeader header;
  if (bytes.size() < sizeof(header)) return bytes;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const FileHeader of_this_version;
  header.magic = of_this_version.magic;
  header.version = of_this_version.version;
  const auto hash_of = [&bytes](uint64_t begin, uint64_t end) {
    ContentHash hash;
    if (begin < end && end <= bytes.size())
      hash.Add(absl::string_view(bytes).substr(begin, end - begin));
    return hash.Value();
  };
  if (header.nodes < bytes.size() && header.items < bytes.size()) {
    header.trie_hash = hash_of(sizeof(header), header.offsets_at());
    header.texts_hash = hash_of(header.offsets_at(), bytes.size());
  }
  header.fingerprint = header.Fingerprint();
  header.header_hash = header.Hash();
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

void UseFormat(const std::shared_ptr<const Catalogue>& catalogue, Selection selection) {
  std::vector<TokenId> ends;
  if (catalogue->end() == ItemEnd::kStop) ends = {catalogue->vocab_size() - 1};
  const auto format = MakeCatalogueFormat(catalogue, std::move(selection), ends);
  if (!format.ok()) return CheckRefusal(format.status());
  for (int64_t item = 0; item < catalogue->items(); ++item) {
    OutputFormat::State state = (*format)->Start();
    for (const TokenId token : catalogue->Tokens(item)) {
      if (state < 0) break;
      const bool allowed = (*format)->Allowed(state)->Has(token);
      state = (*format)->Next(state, token);
      Require(allowed == (state >= 0), "Next and Allowed contradict each other");
    }
  }
}

void UseCatalogue(const std::string& path) {
  const auto opened = Catalogue::Open(path);
  if (!opened.ok()) return CheckRefusal(opened.status());
  const Catalogue& catalogue = **opened;
  const bool whole = catalogue.Check().ok();
  if (!whole) CheckRefusal(catalogue.Check());
  for (int64_t item = 0; item < catalogue.items(); ++item) {
    const std::vector<TokenId> tokens = catalogue.Tokens(item);
    Require(!tokens.empty() && catalogue.ItemOf(tokens) == item,
            "an item is not that of its tokens");
    const std::string id = catalogue.Id(item);
    catalogue.Name(item);
    const int64_t found = catalogue.FindId(id);
    Require(found >= -1 && found < catalogue.items(), "an id leads to no item");
    Require(!whole || found == item, "a catalogue that is whole does not find an item");
  }
  UseFormat(*opened, {});
  UseFormat(*opened, {{0, catalogue.items() - 1}, {0}, {}});
  UseFormat(*opened, {{}, {0}, {catalogue.Tokens(0)[0]}});
}

void UseItems(const std::string& path, const std::string& output, ItemEnd end) {
  const coordinator::ByteTokenizer tokenizer;
  const auto builder = CatalogueBuilder::Make(
      {.source = path, .output = output, .vocab_size = tokenizer.vocab_size(), .end = end});
  Require(builder.ok(), "no builder");
  absl::Status status = ReadItems(
      path, tokenizer, end, [](int64_t) {}, builder->get());
  if (status.ok()) status = (*builder)->Write().status();
  if (!status.ok()) return CheckRefusal(status);
  const auto catalogue = Catalogue::Open(output);
  Require(
      catalogue.ok() && (*catalogue)->items() == (*builder)->items() && (*catalogue)->Check().ok(),
      "what was compiled is not whole");
  UseCatalogue(output);
}

void FuzzOne(const std::string& bytes) {
  static const test::TempDir* const dir = new test::TempDir;
  if (bytes.empty()) return;
  const int choice = static_cast<unsigned char>(bytes[0]) % 4;
  const std::string path = dir->File("F");
  std::ofstream(path, std::ios::binary)
      << (choice == 1 ? Sealed(bytes.substr(1)) : bytes.substr(1));
  if (choice < 2) return UseCatalogue(path);
  UseItems(path, dir->File("O"), choice == 2 ? ItemEnd::kNone : ItemEnd::kStop);
}

}  // namespace
}  // namespace coppice::catalogue

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  coppice::catalogue::FuzzOne(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
