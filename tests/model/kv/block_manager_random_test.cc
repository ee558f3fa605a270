// 100,000 random operations, compared with a naive model of the KV pool. In the model, a slot holds
// the hash of the path of the token that was computed into it. Passes write slots and commits copy
// them. Every chain must read back as its path. So a wrong copy, a slot that is reused too early
// and a wrongly shared block are all detected.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
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
      : blocks_(options), random_(seed), kv_(options.num_blocks * kBlockSize, 0) {}

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

  int64_t operations = 0;
  int64_t exhausted = 0, moved = 0, adopted = 0, beginnings = 0;
  int check_every = 1;
  bool failed() const { return ::testing::Test::HasFatalFailure(); }

 private:
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
    ASSERT_EQ(copies.size(), common.size());
    for (const KvCopy& copy : copies) ASSERT_FALSE(freed_.contains(copy.destination));
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
      kv_[slot] = hash;
    }
    writes_.clear();
    for (ModelSequence& sequence : sequences_) {
      for (auto& [id, node] : sequence.nodes) {
        if (std::exchange(node.computed, true)) continue;
        const int32_t slot = blocks_.slot(sequence.handle, id);
        ASSERT_TRUE(written.insert(slot).second);
        kv_[slot] = node.hash;
      }
      Read(sequence);
    }
  }

  void Read(const ModelSequence& sequence) {
    ASSERT_EQ(blocks_.prefix_length(sequence.handle), static_cast<int>(sequence.prefix.size()));
    const auto table = blocks_.block_table(sequence.handle);
    if (copies_.empty() && writes_.empty()) {
      for (size_t i = 0; i < sequence.prefix.size(); ++i) {
        ASSERT_EQ(kv_[table[i / kBlockSize] * kBlockSize + i % kBlockSize], sequence.prefix[i])
            << "sequence " << sequence.handle << ", position " << i;
      }
    }
    for (const auto& [id, node] : sequence.nodes) {
      std::vector<int32_t> chain;
      blocks_.AppendChain(sequence.handle, id, &chain);
      ASSERT_EQ(chain.size(), blocks_.chain_length(sequence.handle, id));
      KvNode at = id;
      for (size_t i = chain.size(); i-- > 0; at = sequence.nodes.at(at).parent) {
        ASSERT_EQ(kv_[chain[i]], sequence.nodes.at(at).hash);
      }
      ASSERT_EQ(at, kPrefixEnd);
    }
  }

  BlockManager blocks_;
  std::mt19937_64 random_;
  std::vector<uint64_t> kv_;  // slot -> hash of the path whose last token it holds
  std::vector<ModelSequence> sequences_;
  std::vector<KvCopy> copies_;                        // of the next pass
  std::vector<std::pair<int32_t, uint64_t>> writes_;  // prefix slots of the next pass
  std::set<int32_t> freed_;                           // slots freed in this round
};

void RunOperations(const BlockManagerOptions& options, uint64_t seed, int64_t operations) {
  RandomOperations random(options, seed);
  while (random.operations < operations) {
    random.check_every = random.operations < 5000 ? 1 : 50;
    random.Round();
    ASSERT_FALSE(random.failed()) << "after operation " << random.operations;
  }
  // The random walk must have covered these cases.
  EXPECT_GT(random.moved, operations / 50);
  if (options.prefix_cache) {
    EXPECT_GT(random.adopted, 0);
    EXPECT_GT(random.beginnings, 0);
  }
  std::cout << operations << " operations: " << random.exhausted << " exhausted, " << random.moved
            << " tokens committed, " << random.adopted << " adopted, " << random.beginnings
            << " of beginnings\n";
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
