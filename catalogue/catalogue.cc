#include "catalogue/catalogue.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "catalogue/content_hash.h"

namespace coppice::catalogue {
namespace {

absl::Status BadFile(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::StatusOr<std::string> ReadBegin(const std::string& path, int file) {
  std::string bytes(sizeof(FileHeader), '\0');
  const ssize_t got = pread(file, bytes.data(), bytes.size(), 0);
  if (got < 0) return BadFile(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

template <typename Value>
absl::Status ReadArray(const std::string& path, int file, std::vector<Value>* to,
                       ContentHash* hash) {
  char* const begin = reinterpret_cast<char*>(to->data());
  const size_t bytes = to->size() * sizeof(Value);
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(file, begin + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return BadFile(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (got == 0) return BadFile(path, "cut off while it was read");
    done += static_cast<size_t>(got);
  }
  hash->Add({begin, bytes});
  return absl::OkStatus();
}

absl::StatusOr<ItemTrie> ReadTrie(const std::string& path, int file, const FileHeader& header) {
  std::vector<ItemTrie::Node> nodes(header.nodes + 1);
  std::vector<uint64_t> ends((header.nodes + 63) / 64);
  ContentHash hash;
  if (lseek(file, sizeof(FileHeader), SEEK_SET) < 0)
    return BadFile(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  COPPICE_RETURN_IF_ERROR(ReadArray(path, file, &nodes, &hash));
  COPPICE_RETURN_IF_ERROR(ReadArray(path, file, &ends, &hash));
  if (hash.Value() != header.trie_hash) return BadFile(path, "the trie is damaged");
  auto trie = ItemTrie::Make(std::move(nodes), std::move(ends), static_cast<int>(header.vocab_size),
                             header.end);
  if (!trie.ok()) return BadFile(path, trie.status().message());
  if (trie->items() != static_cast<int64_t>(header.items))
    return BadFile(path, absl::StrCat(trie->items(), " items, the header says ", header.items));
  return trie;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Catalogue>> Catalogue::Open(const std::string& path) {
  COPPICE_ASSIGN_OR_RETURN(const int file, OpenRegularFile(path, INT64_MAX));
  auto closes = absl::MakeCleanup([file] { close(file); });
  struct stat about;
  if (fstat(file, &about) != 0)
    return BadFile(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  COPPICE_ASSIGN_OR_RETURN(const std::string begin, ReadBegin(path, file));
  COPPICE_ASSIGN_OR_RETURN(const FileHeader header,
                           FileHeader::Read(path, begin, static_cast<uint64_t>(about.st_size)));
  COPPICE_ASSIGN_OR_RETURN(ItemTrie trie, ReadTrie(path, file, header));
  struct stat after;
  if (fstat(file, &after) != 0 || after.st_size != about.st_size ||
      after.st_mtim.tv_sec != about.st_mtim.tv_sec ||
      after.st_mtim.tv_nsec != about.st_mtim.tv_nsec) {
    return BadFile(path, "changed while it was read");
  }
  std::move(closes).Cancel();
  return std::make_shared<const Catalogue>(path, file, header, std::move(trie));
}

Catalogue::Catalogue(std::string path, int descriptor, const FileHeader& header, ItemTrie trie)
    : path_(std::move(path)), header_(header), trie_(std::move(trie)), texts_(descriptor, header) {}

int64_t Catalogue::ItemOf(absl::Span<const TokenId> tokens) const {
  const ItemTrie::Place place = trie_.Find(tokens);
  return place == ItemTrie::kNowhere || !trie_.IsItem(place) ? -1 : trie_.ItemsBefore(place);
}

std::vector<TokenId> Catalogue::Tokens(int64_t item) const {
  return trie_.Path(trie_.PlaceOf(item));
}

absl::Status Catalogue::Check() const {
  const absl::Status status = texts_.Check();
  return status.ok() ? status : BadFile(path_, status.message());
}

}  // namespace coppice::catalogue
