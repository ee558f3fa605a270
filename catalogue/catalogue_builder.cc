#include "catalogue/catalogue_builder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"
#include "base/status.h"
#include "catalogue/content_hash.h"
#include "catalogue/item_texts.h"

namespace coppice::catalogue {
namespace {

constexpr size_t kWriteBytes = 4 << 20;

// Writes a new file through a buffer, and hashes what is written.
class Output {
 public:
  explicit Output(int descriptor) : descriptor_(descriptor) {}

  void Add(absl::string_view bytes) {
    hash_.Add(bytes);
    pending_.append(bytes.data(), bytes.size());
    if (pending_.size() >= kWriteBytes) Flush();
  }
  template <typename Value>
  void AddAll(const std::vector<Value>& values) {
    Add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)});
  }
  // The hash of what was added since the last call.
  uint64_t TakeHash() { return std::exchange(hash_, ContentHash()).Value(); }
  bool Flush() {
    for (size_t done = 0; ok_ && done < pending_.size();) {
      const ssize_t wrote = write(descriptor_, pending_.data() + done, pending_.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      ok_ = wrote > 0;
      if (ok_) done += static_cast<size_t>(wrote);
    }
    pending_.clear();
    return ok_;
  }

 private:
  const int descriptor_;
  bool ok_ = true;
  ContentHash hash_;
  std::string pending_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CatalogueBuilder>> CatalogueBuilder::Make(Options options) {
  std::unique_ptr<CatalogueBuilder> builder(new CatalogueBuilder(std::move(options)));
  COPPICE_ASSIGN_OR_RETURN(builder->texts_, ScratchFile::Make(builder->options_.output));
  return builder;
}

absl::Status CatalogueBuilder::Bad(uint32_t item, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(options_.source, ":", line_[item], ": ", what));
}

void CatalogueBuilder::Tell(absl::string_view doing) const {
  if (options_.progress) options_.progress(std::string(doing));
}

absl::Status CatalogueBuilder::Add(absl::Span<const TokenId> tokens, absl::string_view id,
                                   absl::string_view name, uint32_t line) {
  const auto item = static_cast<uint32_t>(line_.size());
  line_.push_back(line);
  if (item == INT32_MAX - 1) return Bad(item, "too many items");
  if (tokens.empty()) return Bad(item, "the item has no tokens");
  if (tokens.size() > ItemTrie::kMostTokens) {
    return Bad(item, absl::StrCat("the item has ", tokens.size(), " tokens, at most ",
                                  ItemTrie::kMostTokens, " are possible"));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= options_.vocab_size) {
      return Bad(item, absl::StrCat("token ", token, " is outside of the vocabulary, which has ",
                                    options_.vocab_size));
    }
  }
  if (id.empty()) return Bad(item, "the id is empty");
  if (id.size() > kMostIdBytes)
    return Bad(item, absl::StrCat("the id has more than ", kMostIdBytes, " bytes"));
  if (name.size() > kMostNameBytes)
    return Bad(item, absl::StrCat("the name has more than ", kMostNameBytes, " bytes"));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  begin_.push_back(tokens_.size());
  id_hash_.push_back(Xxh64(id));
  id_bytes_.push_back(static_cast<uint16_t>(id.size()));
  const auto id_bytes = static_cast<uint32_t>(id.size());
  COPPICE_RETURN_IF_ERROR(
      texts_->Append({reinterpret_cast<const char*>(&id_bytes), sizeof(id_bytes)}));
  COPPICE_RETURN_IF_ERROR(texts_->Append(id));
  COPPICE_RETURN_IF_ERROR(texts_->Append(name));
  text_begin_.push_back(texts_->size());
  return absl::OkStatus();
}

// By tokens, and equal ones by their place in the source. The first tokens are compared as one
// number in which an item that has ended comes before every token.
void CatalogueBuilder::Sort() {
  struct Key {
    uint64_t first;
    uint32_t item;
  };
  const int bits = std::bit_width(static_cast<uint64_t>(options_.vocab_size));
  const size_t packed = 64 / bits;
  std::vector<Key> keys(line_.size());
  for (uint32_t item = 0; item < keys.size(); ++item) {
    const absl::Span<const uint32_t> tokens = Tokens(item);
    uint64_t first = 0;
    for (size_t i = 0; i < packed; ++i)
      first = first << bits | (i < tokens.size() ? uint64_t{tokens[i]} + 1 : 0);
    keys[item] = {first, item};
  }
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    if (a.first != b.first) return a.first < b.first;
    const absl::Span<const uint32_t> x = Tokens(a.item), y = Tokens(b.item);
    if (x.size() > packed && y.size() > packed) {
      const auto differ = std::mismatch(x.begin() + packed, x.end(), y.begin() + packed, y.end());
      if (differ.first != x.end() && differ.second != y.end())
        return *differ.first < *differ.second;
    }
    return x.size() != y.size() ? x.size() < y.size() : a.item < b.item;
  });
  order_.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) order_[i] = keys[i].item;
}

absl::Status CatalogueBuilder::CheckNeighbours() {
  shared_.resize(order_.size());
  for (size_t i = 1; i < order_.size(); ++i) {
    const uint32_t before = order_[i - 1], item = order_[i];
    const absl::Span<const uint32_t> a = Tokens(before), b = Tokens(item);
    const size_t shared = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    shared_[i] = static_cast<uint8_t>(shared);
    if (shared < a.size()) continue;
    if (shared == b.size())
      return Bad(item,
                 absl::StrCat("the item has the same tokens as that of line ", line_[before]));
    if (options_.end == ItemEnd::kNone) {
      return Bad(item, absl::StrCat("the item begins with all tokens of that of line ",
                                    line_[before], ", which only --end=stop allows"));
    }
  }
  return absl::OkStatus();
}

// Level by level. A node begins at each item that goes on and does not share its path with the item
// before; its children begin where the next level has got to by then.
absl::Status CatalogueBuilder::BuildTrie() {
  nodes_ = {{0, 1}};
  std::vector<uint32_t> by_end;  // numbers in the source, in the order of the catalogue
  by_end.reserve(order_.size());
  std::vector<uint32_t> above(order_.size());  // places in order_ of the items with >= level tokens
  std::iota(above.begin(), above.end(), 0);
  size_t parent = 0;  // the next node of `level` that begins
  for (size_t level = 0; !above.empty(); ++level) {
    std::vector<uint32_t> below;  // those with more
    const size_t next_level = nodes_.size();
    for (const uint32_t place : above) {
      if (place == 0 || shared_[place] < level) nodes_[parent++].first_child = nodes_.size();
      const uint32_t item = order_[place];
      const absl::Span<const uint32_t> tokens = Tokens(item);
      if (tokens.size() <= level) continue;
      if (place == 0 || shared_[place] <= level) nodes_.push_back({tokens[level], 0});
      below.push_back(place);
      if (tokens.size() > level + 1) continue;
      const size_t node = nodes_.size() - 1;
      ends_.resize(node / 64 + 1);
      ends_[node / 64] |= uint64_t{1} << (node % 64);
      by_end.push_back(item);
    }
    if (nodes_.size() >= INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.source, ": the trie has more than ", INT32_MAX, " nodes"));
    }
    parent = next_level;
    above = std::move(below);
  }
  nodes_.push_back({0, static_cast<uint32_t>(nodes_.size())});
  order_ = std::move(by_end);
  return absl::OkStatus();
}

absl::StatusOr<std::string> CatalogueBuilder::IdOf(uint32_t item) {
  return texts_->Read(text_begin_[item] + sizeof(uint32_t), id_bytes_[item]);
}

absl::Status CatalogueBuilder::HashIds() {
  const uint64_t slots = SlotsFor(order_.size());
  slots_.assign(slots, 0);
  for (size_t k = 0; k < order_.size(); ++k) {
    const uint64_t hash = id_hash_[order_[k]];
    uint64_t slot = FirstSlot(hash, slots);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots - 1)) {
      const uint32_t other = order_[slots_[slot] - 1];
      if (id_hash_[other] != hash) continue;
      COPPICE_ASSIGN_OR_RETURN(const std::string id, IdOf(order_[k]));
      COPPICE_ASSIGN_OR_RETURN(const std::string other_id, IdOf(other));
      if (id != other_id) continue;
      return Bad(std::max(order_[k], other),
                 absl::StrCat("the item has the same id as that of line ",
                              line_[std::min(order_[k], other)], ", \"", PrintableName(id), "\""));
    }
    slots_[slot] = static_cast<uint32_t>(k + 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<FileHeader> CatalogueBuilder::WriteFile(int descriptor) {
  FileHeader header;
  header.end = options_.end;
  header.vocab_size = static_cast<uint64_t>(options_.vocab_size);
  header.vocabulary = options_.vocabulary;
  header.nodes = nodes_.size() - 1;
  header.items = order_.size();
  header.text_bytes = texts_->size();
  header.slots = slots_.size();
  Output out(descriptor);
  out.Add(std::string(sizeof(header), '\0'));
  out.TakeHash();
  out.AddAll(nodes_);
  out.AddAll(ends_);
  header.trie_hash = out.TakeHash();
  std::vector<uint64_t> offsets = {0};
  offsets.reserve(order_.size() + 1);
  for (const uint32_t item : order_)
    offsets.push_back(offsets.back() + text_begin_[item + 1] - text_begin_[item]);
  out.AddAll(offsets);
  for (const uint32_t item : order_) {
    COPPICE_ASSIGN_OR_RETURN(
        const std::string record,
        texts_->Read(text_begin_[item], text_begin_[item + 1] - text_begin_[item]));
    out.Add(record);
  }
  out.AddAll(slots_);
  header.texts_hash = out.TakeHash();
  header.fingerprint = header.Fingerprint();
  header.header_hash = header.Hash();
  if (!out.Flush() || pwrite(descriptor, &header, sizeof(header), 0) != sizeof(header) ||
      fsync(descriptor) != 0) {
    return absl::UnavailableError(
        absl::StrCat(options_.output, ": cannot be written: ", std::strerror(errno)));
  }
  return header;
}

absl::StatusOr<FileHeader> CatalogueBuilder::Write() {
  if (line_.empty())
    return absl::InvalidArgumentError(absl::StrCat(options_.source, ": there are no items"));
  Tell("sorting");
  Sort();
  COPPICE_RETURN_IF_ERROR(CheckNeighbours());
  Tell("building the trie");
  COPPICE_RETURN_IF_ERROR(BuildTrie());
  Tell("looking for equal ids");
  COPPICE_RETURN_IF_ERROR(HashIds());
  Tell("writing");
  std::string name = absl::StrCat(options_.output, ".XXXXXX");
  const int descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) {
    return absl::NotFoundError(
        absl::StrCat(options_.output, ": cannot be made: ", std::strerror(errno)));
  }
  auto header = WriteFile(descriptor);
  const bool readable = fchmod(descriptor, 0644) == 0;
  close(descriptor);
  if (header.ok() && (!readable || rename(name.c_str(), options_.output.c_str()) != 0)) {
    header = absl::UnavailableError(
        absl::StrCat(options_.output, ": cannot be written: ", std::strerror(errno)));
  }
  if (!header.ok()) unlink(name.c_str());
  return header;
}

}  // namespace coppice::catalogue
