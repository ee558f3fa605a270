// 100,000 random operations, compared with a naive model of the KV pool. In the model, a slot holds
// the hash of the path of the token that was computed into it. Passes write slots and commits copy
// them. Every chain must read back as its path. So a wrong copy, a slot that is reused too early
// and a wrongly shared block are all detected. With windows slots are those of pages, for each group
// of layers: a row must find what its window has, and without a prefix cache a page that no block
// has is overwritten at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "kernels/backend.h"
#include "model/kv/block_manager.h"
#include "sampling/rng.h"

namespace coppice::model {
namespace {

struct ModelNode {
  KvNode parent;
  TokenId token;
  uint64_t hash;
  bool computed = false;
};

struct ModelSequence {
  SequenceHandle handle;
  std::vector<TokenId> prompt;
  std::vector<uint64_t> prefix;  // hash of every prefix, position by position
  std::vector<TokenId> path;     // the tokens of the prefix
  int first_row = -1;            // position of the first prefix row of the next pass; -1: none
  std::map<KvNode, ModelNode> nodes;
  uint64_t end_hash() const { return prefix.empty() ? sampling::kRootHash : prefix.back(); }
  void Extend(TokenId token) {
    prefix.push_back(sampling::ExtendHash(end_hash(), token));
    path.push_back(token);
  }
  uint64_t hash(KvNode node) const { return node == kPrefixEnd ? end_hash() : nodes.at(node).hash; }
};

class RandomOperations {
 public:
  RandomOperations(const BlockManagerOptions& options, uint64_t seed)
      : options_(options),
        blocks_(options),
        random_(seed),
        kv_(std::max(options.num_blocks, options.num_pages) * kBlockSize, 0),
        windows_(options.windows.empty() ? std::vector<int>{0} : options.windows),
        pages_(windows_.size(), std::vector<int32_t>(options.num_blocks, 0)) {
    if (options.windows.empty()) std::iota(pages_[0].begin(), pages_[0].end(), 0);
  }

  // One round: new nodes, a pass over them, verdicts, EndRound.
  void Round() {
    for (int i = Below(12); i > 0; --i) Grow();
    Pass();
    for (int i = Below(6); i > 0; --i) Shrink();
    blocks_.EndRound();
    freed_.clear();
    if (Below(8) == 0) {  // a second EndRound before the pass, as when a request is cancelled
      if (!sequences_.empty()) Close(Below(sequences_.size()));
      blocks_.EndRound();
      freed_.clear();
    }
    if (Below(4) == 0) Idle();
    ASSERT_TRUE(blocks_.CheckIntegrity().ok()) << blocks_.CheckIntegrity();
  }

  // A round without a pass: what is copied waits.
  void Idle() {
    for (int i = Below(6); i > 0 && !sequences_.empty(); --i) {
      ModelSequence& sequence = sequences_[Below(sequences_.size())];
      if (sequence.prefix.size() + 1 < sequence.prompt.size()) TakeFromCache(sequence);
    }
    if (Below(3) == 0 && !sequences_.empty()) Close(Below(sequences_.size()));
    blocks_.EndRound();
    freed_.clear();
  }

  void Check() {
    const absl::Status status = blocks_.CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status;
    const BlockCounts counts = blocks_.counts();
    ASSERT_EQ(counts.used + counts.cached + counts.free, counts.total);
  }

  // Without nodes: exactly the pages that a sequence sees are in use.
  void CheckUsed() {
    std::set<std::pair<int32_t, size_t>> seen;
    for (const ModelSequence& sequence : sequences_) {
      const auto table = blocks_.block_table(sequence.handle);
      for (size_t g = 0; g < windows_.size(); ++g) {
        for (size_t i = 0; i < sequence.prefix.size(); ++i) {
          if (Sees(windows_[g], sequence.prefix.size(), i)) seen.emplace(table[i / kBlockSize], g);
        }
      }
    }
    ASSERT_EQ(blocks_.counts().used, static_cast<int64_t>(seen.size()));
    hidden += std::any_of(sequences_.begin(), sequences_.end(), [&](const ModelSequence& sequence) {
      return !Sees(windows_.back(), sequence.prefix.size(), 0);
    });
  }

  bool with_nodes = true;
  int64_t hidden = 0;  // rounds in which a window had passed a token
  int64_t operations = 0;
  int64_t exhausted = 0, moved = 0, adopted = 0, beginnings = 0;
  int check_every = 1;
  bool failed() const { return ::testing::Test::HasFatalFailure(); }

 private:
  // Whether a row at this position, or a later one, sees the token at the other.
  static bool Sees(int window, size_t row, size_t token) {
    return window == 0 || token + window > row;
  }
  static uint64_t OfGroup(uint64_t hash, size_t group) { return hash + group; }
  void TakePages() {
    for (const PageChange& change : blocks_.TakePageChanges())
      pages_[change.group][change.block] = change.page;
    std::set<int32_t> pages;
    for (const auto& of_group : pages_) {
      for (const int32_t page : of_group) {
        if (page == 0) continue;
        ASSERT_TRUE(pages.insert(page).second) << "two blocks have page " << page;
      }
    }
  }
  // The place of a slot in kv_, in a group.
  int32_t PlaceOf(int32_t slot, size_t group) {
    const int32_t page = pages_[group][slot / kBlockSize];
    EXPECT_NE(page, 0) << "block " << slot / kBlockSize << " has no page";
    return page * kBlockSize + slot % kBlockSize;
  }
  void Write(int32_t slot, uint64_t hash) {
    for (size_t g = 0; g < windows_.size(); ++g) kv_[PlaceOf(slot, g)] = OfGroup(hash, g);
  }
  void OverwriteFreePages() {
    std::set<int32_t> pages;
    for (const auto& of_group : pages_) pages.insert(of_group.begin(), of_group.end());
    for (size_t i = kBlockSize; i < kv_.size(); ++i) {
      if (!pages.contains(static_cast<int32_t>(i) / kBlockSize)) kv_[i] = 0xbad;
    }
  }

  size_t Below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void Done() {
    if (++operations % check_every == 0) Check();
  }

  void Grow() {
    const size_t kind = Below(20);
    if (sequences_.empty() || (kind == 0 && sequences_.size() < 6)) return Open();
    ModelSequence& sequence = sequences_[Below(sequences_.size())];
    if (sequence.prefix.size() + 1 < sequence.prompt.size()) return AppendPrompt(sequence);
    if (kind == 1) return Retain(sequence);
    if (!with_nodes) return Done();
    for (size_t i = 1 + Below(8); i > 0; --i) AddNode(sequence);
  }

  void Shrink() {
    if (sequences_.empty()) return;
    const size_t index = Below(sequences_.size());
    const size_t kind = Below(12);
    if (kind == 0) return Close(index);
    if (kind < 5) return Retain(sequences_[index]);
    Commit(sequences_[index]);
  }

  void Open() {
    ModelSequence sequence;
    const int family = static_cast<int>(Below(3));
    const size_t length = 1 + Below(70), fork = Below(90);
    if (!sequences_.empty() && Below(3) == 0) {  // goes on from what another one has
      sequence.prompt = sequences_[Below(sequences_.size())].path;
      sequence.prompt.resize(std::min(length, sequence.prompt.size()));
    }
    for (size_t i = sequence.prompt.size(); i < length; ++i) {
      sequence.prompt.push_back(static_cast<TokenId>(i < fork ? family + i % 5 : Below(3)));
    }
    int cached = -1;
    sequence.handle = blocks_.Open(sequence.prompt, &cached);
    ASSERT_LT(cached, static_cast<int>(length));
    ASSERT_EQ(cached, blocks_.prefix_length(sequence.handle));
    adopted += cached;
    for (int i = 0; i < cached; ++i) sequence.Extend(sequence.prompt[i]);
    sequences_.push_back(sequence);
    Read(sequences_.back());
    Done();
  }

  void TakeFromCache(ModelSequence& sequence) {
    const int whole = blocks_.Adopt(sequence.handle, sequence.prompt);
    const int begun = blocks_.AdoptBeginning(sequence.handle, sequence.prompt, &copies_);
    for (int i = 0; i < whole + begun; ++i)
      sequence.Extend(sequence.prompt[sequence.prefix.size()]);
    adopted += whole;
    beginnings += begun;
  }

  void AppendPrompt(ModelSequence& sequence) {
    TakeFromCache(sequence);
    if (sequence.prefix.size() + 1 == sequence.prompt.size()) return Done();
    const size_t left = sequence.prompt.size() - 1 - sequence.prefix.size();
    const size_t count = std::min(left, 1 + Below(24));
    const auto tokens = absl::MakeSpan(sequence.prompt).subspan(sequence.prefix.size(), count);
    const BlockCounts before = blocks_.counts();
    auto slots = blocks_.AppendPrefix(sequence.handle, tokens);
    if (!slots.ok()) return Exhausted(slots.status(), before);
    if (sequence.first_row < 0) sequence.first_row = static_cast<int>(sequence.prefix.size());
    ASSERT_EQ(slots->size(), count);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_FALSE(freed_.contains((*slots)[i]));
      sequence.Extend(tokens[i]);
      writes_.emplace_back((*slots)[i], sequence.prefix.back());
    }
    Done();
  }

  void AddNode(ModelSequence& sequence) {
    KvNode parent = kPrefixEnd;
    if (!sequence.nodes.empty() && Below(5) != 0) {
      parent = std::next(sequence.nodes.begin(), Below(sequence.nodes.size()))->first;
    }
    const TokenId token = static_cast<TokenId>(Below(4));
    const BlockCounts before = blocks_.counts();
    const KvNode existing = blocks_.FindChild(sequence.handle, parent, token);
    const bool found = existing != kNoKv;
    auto node = blocks_.AddNode(sequence.handle, parent, token);
    if (!node.ok()) {
      ASSERT_FALSE(found);
      return Exhausted(node.status(), before);
    }
    ASSERT_EQ(found, sequence.nodes.contains(*node));
    if (found) {
      ASSERT_EQ(existing, *node);
      return Done();
    }
    ASSERT_FALSE(freed_.contains(blocks_.slot(sequence.handle, *node)));
    ASSERT_EQ(blocks_.parent(sequence.handle, *node), parent);
    sequence.nodes[*node] = {parent, token, sampling::ExtendHash(sequence.hash(parent), token)};
    Done();
  }

  std::vector<KvNode> SomeNodes(const ModelSequence& sequence, size_t most) {
    std::vector<KvNode> nodes;
    for (size_t i = 1 + Below(most); i > 0 && !sequence.nodes.empty(); --i) {
      nodes.push_back(std::next(sequence.nodes.begin(), Below(sequence.nodes.size()))->first);
    }
    return nodes;
  }

  void Retain(ModelSequence& sequence) {
    const std::vector<KvNode> leaves = SomeNodes(sequence, 12);
    std::set<KvNode> kept;
    for (KvNode leaf : leaves) {
      for (KvNode id = leaf; id != kPrefixEnd; id = sequence.nodes.at(id).parent) kept.insert(id);
    }
    Drop(sequence, kept);
    blocks_.Retain(sequence.handle, leaves);
    ASSERT_EQ(blocks_.nodes(sequence.handle), static_cast<int>(kept.size()));
    Done();
  }

  void Drop(ModelSequence& sequence, const std::set<KvNode>& kept) {
    for (auto it = sequence.nodes.begin(); it != sequence.nodes.end();) {
      if (kept.contains(it->first)) {
        ++it;
      } else {
        freed_.insert(blocks_.slot(sequence.handle, it->first));
        it = sequence.nodes.erase(it);
      }
    }
  }

  // Retains and commits leaves whose KV is computed, as a worker does.
  void Commit(ModelSequence& sequence) {
    std::vector<KvNode> leaves;
    for (KvNode leaf : SomeNodes(sequence, 4)) {
      if (sequence.nodes.at(leaf).computed) leaves.push_back(leaf);
    }
    if (leaves.empty()) return;
    std::set<KvNode> kept;
    std::vector<KvNode> common;  // root first
    for (const KvNode& leaf : leaves) {
      std::vector<KvNode> chain;
      for (KvNode id = leaf; id != kPrefixEnd; id = sequence.nodes.at(id).parent)
        chain.insert(chain.begin(), id);
      kept.insert(chain.begin(), chain.end());
      if (&leaf == &leaves[0]) common = chain;
      size_t shared = 0;
      while (shared < std::min(common.size(), chain.size()) && common[shared] == chain[shared])
        ++shared;
      common.resize(shared);
    }
    Drop(sequence, kept);
    blocks_.Retain(sequence.handle, leaves);
    Done();
    std::vector<int32_t> sources;
    for (KvNode id : common) sources.push_back(blocks_.slot(sequence.handle, id));
    const BlockCounts before = blocks_.counts();
    std::vector<KvCopy> copies;
    auto count = blocks_.Commit(sequence.handle, leaves, &copies);
    if (!count.ok()) {
      ASSERT_EQ(blocks_.nodes(sequence.handle), static_cast<int>(kept.size()));
      ASSERT_TRUE(copies.empty());
      return Exhausted(count.status(), before);
    }
    ASSERT_EQ(*count, static_cast<int>(common.size()));
    if (options_.windows.empty()) {
      ASSERT_EQ(copies.size(), common.size());
      for (const KvCopy& copy : copies) ASSERT_FALSE(freed_.contains(copy.destination));
    }
    copies_.insert(copies_.end(), copies.begin(), copies.end());
    freed_.insert(sources.begin(), sources.end());
    moved += *count;
    for (KvNode id : common) sequence.Extend(sequence.nodes.at(id).token);
    for (KvNode id : common) sequence.nodes.erase(id);
    for (auto& [id, node] : sequence.nodes) {
      if (!common.empty() && node.parent == common.back()) node.parent = kPrefixEnd;
      ASSERT_EQ(blocks_.parent(sequence.handle, id), node.parent);
    }
    Done();
  }

  void Close(size_t index) {
    ModelSequence& sequence = sequences_[index];
    Drop(sequence, {});
    for (int32_t block : blocks_.block_table(sequence.handle)) {
      bool shared = false;
      for (size_t i = 0; i < sequences_.size(); ++i) {
        const auto table = blocks_.block_table(sequences_[i].handle);
        shared |= i != index && std::find(table.begin(), table.end(), block) != table.end();
      }
      for (int i = 0; i < kBlockSize && !shared; ++i) freed_.insert(block * kBlockSize + i);
    }
    blocks_.Close(sequence.handle);
    sequences_.erase(sequences_.begin() + index);
    Done();
  }

  void Exhausted(const absl::Status& status, const BlockCounts& before) {
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    ASSERT_EQ(blocks_.counts().used, before.used);
    ASSERT_EQ(blocks_.counts().cached, before.cached);
    ++exhausted;
    Done();
  }

  // The forward pass: first the commits, as an unordered list, then the writes of this round.
  void Pass() {
    TakePages();
    std::set<int32_t> sources, destinations;
    for (const KvCopy& copy : copies_) {
      sources.insert(copy.source);
      ASSERT_TRUE(destinations.insert(copy.destination).second) << "destination used twice";
    }
    for (int32_t source : sources) ASSERT_FALSE(destinations.contains(source));
    for (const KvCopy& copy : copies_) kv_[copy.destination] = kv_[copy.source];
    copies_.clear();
    std::set<int32_t> written;
    for (auto [slot, hash] : writes_) {
      ASSERT_TRUE(written.insert(slot).second);
      Write(slot, hash);
    }
    writes_.clear();
    for (ModelSequence& sequence : sequences_) {
      for (auto& [id, node] : sequence.nodes) {
        if (std::exchange(node.computed, true)) continue;
        const int32_t slot = blocks_.slot(sequence.handle, id);
        ASSERT_TRUE(written.insert(slot).second);
        Write(slot, node.hash);
      }
      Read(sequence);
      sequence.first_row = -1;
    }
    if (!options_.prefix_cache && !options_.windows.empty()) OverwriteFreePages();
  }

  void Read(const ModelSequence& sequence) {
    TakePages();
    ASSERT_EQ(blocks_.prefix_length(sequence.handle), static_cast<int>(sequence.prefix.size()));
    const auto table = blocks_.block_table(sequence.handle);
    if (copies_.empty() && writes_.empty()) {
      const size_t row = sequence.first_row < 0 ? sequence.prefix.size() : sequence.first_row;
      for (size_t i = 0; i < sequence.prefix.size(); ++i) {
        const int32_t slot = table[i / kBlockSize] * kBlockSize + static_cast<int>(i) % kBlockSize;
        for (size_t g = 0; g < windows_.size(); ++g) {
          if (!Sees(windows_[g], row, i)) continue;
          ASSERT_EQ(kv_[PlaceOf(slot, g)], OfGroup(sequence.prefix[i], g))
              << "sequence " << sequence.handle << ", position " << i << ", group " << g;
        }
      }
    }
    for (const auto& [id, node] : sequence.nodes) {
      std::vector<int32_t> chain;
      blocks_.AppendChain(sequence.handle, id, &chain);
      ASSERT_EQ(chain.size(), blocks_.chain_length(sequence.handle, id));
      KvNode at = id;
      for (size_t i = chain.size(); i-- > 0; at = sequence.nodes.at(at).parent) {
        for (size_t g = 0; g < windows_.size(); ++g)
          ASSERT_EQ(kv_[PlaceOf(chain[i], g)], OfGroup(sequence.nodes.at(at).hash, g));
      }
      ASSERT_EQ(at, kPrefixEnd);
    }
  }

  const BlockManagerOptions options_;
  BlockManager blocks_;
  std::mt19937_64 random_;
  std::vector<uint64_t> kv_;  // slot -> hash of the path whose last token it holds
  const std::vector<int> windows_;
  std::vector<std::vector<int32_t>> pages_;  // [groups][blocks] as ranks know them
  std::vector<ModelSequence> sequences_;
  std::vector<KvCopy> copies_;                        // of the next pass
  std::vector<std::pair<int32_t, uint64_t>> writes_;  // prefix slots of the next pass
  std::set<int32_t> freed_;                           // slots freed in this round
};

void RunOperations(const BlockManagerOptions& options, uint64_t seed, int64_t operations,
                   bool with_nodes = true) {
  RandomOperations random(options, seed);
  random.with_nodes = with_nodes;
  while (random.operations < operations) {
    random.check_every = random.operations < 5000 ? 1 : 50;
    random.Round();
    if (!with_nodes) random.CheckUsed();
    ASSERT_FALSE(random.failed()) << "after operation " << random.operations;
  }
  // The random walk must have covered these cases.
  if (with_nodes) {
    EXPECT_GT(random.moved, operations / 50);
  } else {
    EXPECT_GT(random.hidden, operations / 50);
  }
  if (options.prefix_cache) {
    EXPECT_GT(random.adopted, 0);
    EXPECT_GT(random.beginnings, 0);
  }
  std::cout << operations << " operations: " << random.exhausted << " exhausted, " << random.moved
            << " tokens committed, " << random.adopted << " adopted, " << random.beginnings
            << " of beginnings\n";
}

// ---- A model with windows. Prompts have up to 70 tokens, sequences some more.

TEST(BlockManagerRandomTest, SomeLayersWithAWindow) {
  RunOperations({.num_blocks = 60, .scratch_blocks = 2, .windows = {0, 20, 20}, .num_pages = 48}, 4,
                100000);
}

TEST(BlockManagerRandomTest, AllLayersWithAWindow) {
  RunOperations({.num_blocks = 60, .scratch_blocks = 1, .windows = {9}, .num_pages = 16}, 5, 50000);
  RunOperations({.num_blocks = 60, .scratch_blocks = 1, .windows = {1}, .num_pages = 14}, 6, 20000);
  RunOperations({.num_blocks = 60, .scratch_blocks = 1, .windows = {16, 33}, .num_pages = 34}, 7,
                20000);
}

TEST(BlockManagerRandomTest, WindowsAndNoCache) {
  RunOperations({.num_blocks = 100,
                 .scratch_blocks = 0,
                 .prefix_cache = false,
                 .windows = {0, 17},
                 .num_pages = 64},
                8, 50000);
}

// Too few blocks for the pages: what leads to pages of windows goes.
TEST(BlockManagerRandomTest, WindowsAndFewBlocks) {
  RunOperations({.num_blocks = 24, .scratch_blocks = 1, .windows = {12}, .num_pages = 60}, 9,
                30000);
}

TEST(BlockManagerRandomTest, ExactlyWhatIsSeenIsInUse) {
  for (const bool cache : {false, true}) {
    RunOperations({.num_blocks = 60, .prefix_cache = cache, .windows = {0, 20, 7}, .num_pages = 50},
                  10, 20000, /*with_nodes=*/false);
  }
}

TEST(BlockManagerRandomTest, HundredThousandOperationsKeepEveryPath) {
  RunOperations({.num_blocks = 32, .scratch_blocks = 2}, 1, 100000);
}

TEST(BlockManagerRandomTest, ScarcePool) {
  RunOperations({.num_blocks = 14, .scratch_blocks = 1}, 2, 30000);
}

TEST(BlockManagerRandomTest, RunsOnlyAndNoCache) {
  RunOperations({.num_blocks = 100, .scratch_blocks = 0, .prefix_cache = false}, 3, 30000);
}

}  // namespace
}  // namespace coppice::model
