#include "catalogue/catalogue_format.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace coppice::catalogue {
namespace {

constexpr size_t kMostKeptTokens = 1 << 20;  // of the sets of tokens that are kept, 4 MiB
constexpr int kKeptLevels = 2;               // the root and its children
constexpr int kChildrenPerClimb = 8;  // to climb from an item takes as long as to look at so many

// Sorts, and drops repetitions.
template <typename Value>
std::vector<Value> Distinct(std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The items that a selection leaves.
class Remaining {
 public:
  explicit Remaining(const Selection& selection)
      : some_(!selection.allowed.empty()),
        allowed_(Distinct(selection.allowed)),
        excluded_(Distinct(selection.excluded)) {
    if (!some_) return;
    std::vector<int64_t> left;
    std::set_difference(allowed_.begin(), allowed_.end(), excluded_.begin(), excluded_.end(),
                        std::back_inserter(left));
    allowed_ = std::move(left);
    excluded_.clear();
  }

  bool all() const { return !some_ && excluded_.empty(); }
  bool some() const { return some_; }  // only those of a list
  absl::Span<const int64_t> ListedIn(int64_t begin, int64_t end) const {
    const auto first = std::lower_bound(allowed_.begin(), allowed_.end(), begin);
    const auto last = std::lower_bound(first, allowed_.end(), end);
    return absl::MakeConstSpan(allowed_).subspan(first - allowed_.begin(), last - first);
  }
  bool AllOf(int64_t begin, int64_t end) const { return Count(begin, end) == end - begin; }
  bool Has(int64_t item) const { return AnyOf(item, item + 1); }
  // Of the items begin, ..., end - 1.
  bool AnyOf(int64_t begin, int64_t end) const { return Count(begin, end) > 0; }
  int64_t Count(int64_t begin, int64_t end) const {
    return some_ ? CountOf(allowed_, begin, end) : end - begin - CountOf(excluded_, begin, end);
  }

 private:
  static int64_t CountOf(const std::vector<int64_t>& sorted, int64_t begin, int64_t end) {
    const auto first = std::lower_bound(sorted.begin(), sorted.end(), begin);
    return std::lower_bound(first, sorted.end(), end) - first;
  }

  const bool some_;                          // only those of allowed_
  std::vector<int64_t> allowed_, excluded_;  // ascending
};

class CatalogueFormat : public OutputFormat {
 public:
  CatalogueFormat(std::shared_ptr<const Catalogue> catalogue, const Selection& selection,
                  std::vector<TokenId> ends)
      : catalogue_(std::move(catalogue)),
        trie_(catalogue_->trie()),
        stops_(catalogue_->end() == ItemEnd::kStop),
        remaining_(selection),
        ends_(Distinct(std::move(ends))),
        start_(trie_.Find(selection.prefix)) {}

  // After making it: the reason why it serves nothing.
  absl::Status Check(const Selection& selection) const;

  State Start() const override { return start_; }
  State Next(State state, TokenId token) const override {
    if (state < 0) return kBroken;
    const ItemTrie::Place child = trie_.Child(state, token);
    return child != ItemTrie::kNowhere && IsAlive(child) ? child : kBroken;
  }
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override;
  bool CutShort(State) const override { return false; }
  bool Complete(State state) const override { return !stops_ && state > 0 && trie_.IsItem(state); }
  bool has_complete_states() const override { return !stops_; }

 private:
  // Some remaining item begins with the node's path.
  bool IsAlive(ItemTrie::Place node) const {
    return remaining_.all() || !trie_.VisitItems(node, [this](int64_t begin, int64_t end) {
      return !remaining_.AnyOf(begin, end);
    });
  }
  // All items that begin with the node's path remain.
  bool IsWhole(ItemTrie::Place node) const {
    return remaining_.all() || trie_.VisitItems(node, [this](int64_t begin, int64_t end) {
      return remaining_.AllOf(begin, end);
    });
  }
  bool StopsAt(ItemTrie::Place node) const {
    return stops_ && trie_.IsItem(node) &&
           (remaining_.all() || remaining_.Has(trie_.ItemsBefore(node)));
  }
  bool ClimbToChildren(ItemTrie::Place node, std::vector<TokenId>* tokens) const;
  std::vector<TokenId> ChildTokens(ItemTrie::Place node) const;
  AllowedTokens List(ItemTrie::Place node) const;

  const std::shared_ptr<const Catalogue> catalogue_;
  const ItemTrie& trie_;
  const bool stops_;  // a stop id follows an item
  const Remaining remaining_;
  const std::vector<TokenId> ends_;  // ascending
  const State start_;
  mutable std::mutex lock_;
  mutable absl::flat_hash_map<State, std::shared_ptr<const AllowedTokens>> kept_;
  mutable size_t kept_tokens_ = 0;
};

// Where a list leaves few items below the node: its children above them. False: there are many.
bool CatalogueFormat::ClimbToChildren(ItemTrie::Place node, std::vector<TokenId>* tokens) const {
  const ItemTrie::Place begin = trie_.ChildrenBegin(node), end = trie_.ChildrenEnd(node);
  if (!remaining_.some()) return false;
  int64_t left = (end - begin) / kChildrenPerClimb;
  const bool few = trie_.VisitItems(node, [&](int64_t first, int64_t last) {
    left -= static_cast<int64_t>(remaining_.ListedIn(first, last).size());
    return left >= 0;
  });
  if (!few) return false;
  trie_.VisitItems(node, [&](int64_t first, int64_t last) {
    for (const int64_t item : remaining_.ListedIn(first, last)) {
      ItemTrie::Place place = trie_.PlaceOf(item);
      while (place >= end) place = trie_.Parent(place);
      if (place >= begin) tokens->push_back(trie_.token(place));  // else it ends at the node
    }
    return true;
  });
  *tokens = Distinct(std::move(*tokens));
  return true;
}

std::vector<TokenId> CatalogueFormat::ChildTokens(ItemTrie::Place node) const {
  std::vector<TokenId> tokens;
  if (ClimbToChildren(node, &tokens)) return tokens;
  tokens.reserve(trie_.ChildrenEnd(node) - trie_.ChildrenBegin(node));
  const bool whole = IsWhole(node);
  for (ItemTrie::Place child = trie_.ChildrenBegin(node); child < trie_.ChildrenEnd(node);
       ++child) {
    if (whole || IsAlive(child)) tokens.push_back(trie_.token(child));
  }
  return tokens;
}

AllowedTokens CatalogueFormat::List(ItemTrie::Place node) const {
  AllowedTokens allowed;
  std::vector<TokenId>& tokens = allowed.listed;
  tokens = ChildTokens(node);
  if (StopsAt(node)) {
    const auto middle = tokens.insert(tokens.end(), ends_.begin(), ends_.end());
    std::inplace_merge(tokens.begin(), middle, tokens.end());
  }
  allowed.count = static_cast<int>(tokens.size());
  if (allowed.count <= AllowedTokens::kMostListed) return allowed;
  allowed.bits.resize((catalogue_->vocab_size() + 63) / 64);
  for (const TokenId token : tokens) allowed.bits[token / 64] |= uint64_t{1} << (token % 64);
  tokens = {};
  return allowed;
}

std::shared_ptr<const AllowedTokens> CatalogueFormat::Allowed(State state) const {
  if (state < 0) return nullptr;
  const bool keep =
      state < trie_.LevelBegin(std::min(kKeptLevels, trie_.longest() + 1)) || state == start_;
  if (!keep) return std::make_shared<const AllowedTokens>(List(state));
  const std::lock_guard<std::mutex> lock(lock_);
  if (const auto known = kept_.find(state); known != kept_.end()) return known->second;
  auto allowed = std::make_shared<const AllowedTokens>(List(state));
  const size_t tokens = allowed->listed.size() + 2 * allowed->bits.size();
  if (kept_tokens_ + tokens <= kMostKeptTokens) {
    kept_tokens_ += tokens;
    kept_.emplace(state, allowed);
  }
  return allowed;
}

absl::Status CatalogueFormat::Check(const Selection& selection) const {
  const auto bad = [this](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat(catalogue_->path(), ": ", what...));
  };
  for (const std::vector<int64_t>* list : {&selection.allowed, &selection.excluded}) {
    for (const int64_t item : *list) {
      if (item < 0 || item >= catalogue_->items())
        return bad("item ", item, " is none of the ", catalogue_->items(), " of the catalogue");
    }
  }
  for (const TokenId end : ends_) {
    if (end < 0 || end >= catalogue_->vocab_size())
      return bad("token ", end, " is none of the vocabulary");
    if (stops_ ? trie_.IsUsed(end) : trie_.IsFollowed(end))
      return bad("token ", end, " ends a text, and is inside of an item");
  }
  if (stops_ && ends_.empty()) return bad("a stop id follows an item, and there is none");
  if (!IsAlive(ItemTrie::kRoot)) {
    return bad("no item is left: ", selection.allowed.empty() ? "all" : "those that are allowed",
               " are excluded");
  }
  const std::string prefix = absl::StrJoin(selection.prefix, " ");
  if (start_ == ItemTrie::kNowhere) return bad("no item begins with the prefix ", prefix);
  if (!IsAlive(start_)) return bad("no item that is left begins with the prefix ", prefix);
  if (Allowed(start_)->count == 0) return bad("nothing follows the prefix ", prefix);
  return absl::OkStatus();
}

}  // namespace

int64_t CountItems(const Catalogue& catalogue, const Selection& selection) {
  const ItemTrie::Place start = catalogue.trie().Find(selection.prefix);
  if (start == ItemTrie::kNowhere) return 0;
  const Remaining remaining(selection);
  int64_t count = 0;
  catalogue.trie().VisitItems(start, [&](int64_t begin, int64_t end) {
    count += remaining.Count(begin, end);
    return true;
  });
  return count;
}

absl::StatusOr<std::shared_ptr<const OutputFormat>> MakeCatalogueFormat(
    std::shared_ptr<const Catalogue> catalogue, Selection selection, std::vector<TokenId> ends) {
  auto format =
      std::make_shared<const CatalogueFormat>(std::move(catalogue), selection, std::move(ends));
  COPPICE_RETURN_IF_ERROR(format->Check(selection));
  return format;
}

}  // namespace coppice::catalogue
