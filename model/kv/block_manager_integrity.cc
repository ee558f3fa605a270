// BlockManager::CheckIntegrity: checks the pool, every table and every trie, and counts the owners
// of all blocks again.
#include <algorithm>
#include <bit>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "model/kv/block_manager_impl.h"

namespace coppice::model {

absl::Status BlockManager::Impl::CheckTable(SequenceHandle handle,
                                            std::vector<int32_t>* owners) const {
  const KvSequence& sequence = sequences[handle];
  auto bad = [&](size_t index, const char* what) {
    return absl::InternalError(
        absl::StrCat("sequence ", handle, ": table entry ", index, ": ", what));
  };
  if (static_cast<int64_t>(sequence.table.size()) != BlocksOf(sequence.prefix_length)) {
    return bad(sequence.table.size(), "table does not fit the prefix length");
  }
  size_t unpublished = 0;  // full blocks that wait for EndRound
  for (size_t i = 0; i < sequence.table.size(); ++i) {
    const int32_t id = sequence.table[i];
    if (id <= 0 || id >= pool.size()) return bad(i, "no such block");
    const PoolBlock& block = pool.at(id);
    ++(*owners)[id];
    if (block.use != BlockUse::kPrefix) return bad(i, "is not a prefix block");
    if (block.published && block.parent != (i == 0 ? kCacheRoot : sequence.table[i - 1])) {
      return bad(i, "is published below another block");
    }
    const bool full = static_cast<int>(i + 1) * kBlockSize <= sequence.prefix_length;
    if (block.published && !full) return bad(i, "is published before it is full");
    if (full && !block.published) ++unpublished;
  }
  for (int group = 0; group < paging().groups(); ++group) {
    if (sequence.first_seen[group] > paging().FirstSeen(group, sequence.prefix_length))
      return bad(group, "the sequence sees too little of a group");
  }
  for (const Filled& full : filled) {
    if (full.sequence == handle && full.generation == sequence.generation) --unpublished;
  }
  if (options.prefix_cache && unpublished != 0) return bad(0, "a full block was never published");
  return absl::OkStatus();
}

absl::Status BlockManager::Impl::CheckTrie(SequenceHandle handle,
                                           std::vector<int32_t>* owners) const {
  const KvSequence& sequence = sequences[handle];
  auto bad = [&](int64_t id, const char* what) {
    return absl::InternalError(
        absl::StrCat("sequence ", handle, ": node or block ", id, ": ", what));
  };
  int places = 0, run_places = 0;
  for (int32_t id : sequence.scratch) {
    ++(*owners)[id];
    if (pool.at(id).use != BlockUse::kScratch) return bad(id, "is not scratch");
    places += std::popcount(pool.at(id).live);
  }
  for (int32_t id : sequence.runs) {
    ++(*owners)[id];
    if (pool.at(id).use != BlockUse::kRun) return bad(id, "is not a run");
    places += std::popcount(pool.at(id).live);
    run_places += std::popcount(pool.at(id).live) + std::popcount(pool.at(id).settling);
  }
  if (places != static_cast<int>(sequence.live.size()))
    return bad(places, "live places do not match nodes");
  if (run_places != sequence.run_places_used) return bad(run_places, "wrong number of run places");
  absl::flat_hash_set<int32_t> slots;
  std::vector<bool> seen(sequence.nodes.size(), false);
  for (KvNode id : sequence.live) {
    const TrieNode& node = sequence.at(id);
    if (!node.live || node.marked || seen[Index(id)])
      return bad(Index(id), "is dead, marked or listed twice");
    if (node.parent != kPrefixEnd && !seen[Index(node.parent)])
      return bad(Index(id), "comes before its parent");
    seen[Index(id)] = true;
    if (!slots.insert(node.slot).second) return bad(Index(id), "shares its slot");
    const int32_t block = node.slot / kBlockSize;
    if ((pool.at(block).live >> node.slot % kBlockSize & 1) == 0)
      return bad(Index(id), "its place is not live");
    if (std::find(sequence.scratch.begin(), sequence.scratch.end(), block) ==
            sequence.scratch.end() &&
        std::find(sequence.runs.begin(), sequence.runs.end(), block) == sequence.runs.end()) {
      return bad(Index(id), "lies in a block of somebody else");
    }
    const int above =
        node.parent == kPrefixEnd ? sequence.prefix_length - 1 : sequence.at(node.parent).position;
    if (node.position != above + 1) return bad(Index(id), "wrong position");
  }
  size_t reached = 0;
  auto check_children = [&](KvNode parent, KvNode child) {
    absl::flat_hash_set<TokenId> tokens;
    for (; child != kNoKv; child = sequence.at(child).next_sibling, ++reached) {
      if (!seen[Index(child)] || sequence.at(child).parent != parent ||
          reached > sequence.live.size() || !tokens.insert(sequence.at(child).token).second) {
        return false;
      }
    }
    return true;
  };
  if (!check_children(kPrefixEnd, sequence.first_root))
    return bad(Index(kPrefixEnd), "bad child list");
  for (KvNode id : sequence.live) {
    if (!check_children(id, sequence.at(id).first_child)) return bad(Index(id), "bad child list");
  }
  if (reached != sequence.live.size()) return bad(reached, "a node is in no child list");
  for (KvNode id : sequence.free_ids) {
    if (seen[Index(id)]) return bad(Index(id), "is both free and in use");
    seen[Index(id)] = true;
  }
  for (KvNode id : sequence.settling_ids) {
    if (seen[Index(id)]) return bad(Index(id), "was freed twice");
    seen[Index(id)] = true;
  }
  if (std::find(seen.begin(), seen.end(), false) != seen.end())
    return bad(-1, "a node id was lost");
  return absl::OkStatus();
}

std::vector<int32_t> BlockManager::Impl::CountViewers() const {
  const int groups = paging().groups();
  std::vector<int32_t> viewers(pool.size() * groups, 0);
  for (const KvSequence& sequence : sequences) {
    if (!sequence.open) continue;
    for (int64_t i = 0; i < static_cast<int64_t>(sequence.table.size()); ++i) {
      const GroupSet seen = SeenAt(sequence, i);
      for (int group = 0; group < groups; ++group)
        viewers[int64_t{sequence.table[i]} * groups + group] += seen >> group & 1;
    }
  }
  return viewers;
}

absl::Status BlockManager::CheckIntegrity() const {
  const BlockPool& pool = impl_->pool;
  COPPICE_RETURN_IF_ERROR(pool.CheckIntegrity(impl_->CountViewers()));
  std::vector<int32_t> owners(pool.size(), 0);
  for (SequenceHandle handle = 0; handle < impl_->sequences.size(); ++handle) {
    if (!impl_->sequences[handle].open) continue;
    COPPICE_RETURN_IF_ERROR(impl_->CheckTable(handle, &owners));
    COPPICE_RETURN_IF_ERROR(impl_->CheckTrie(handle, &owners));
  }
  for (int64_t block = 1; block < pool.size(); ++block) {
    if (owners[block] != pool.at(block).owners) {
      return absl::InternalError(absl::StrCat("block ", block, ": counts ", pool.at(block).owners,
                                              " owners, has ", owners[block]));
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::model
