// Clusters of blocks: their barrier, and the shared memory of peers.
#include "kernels/cuda/simulator/simt_fiber.h"

namespace coppice::kernels::cuda::simt {

void TryReleaseCluster(Cluster* cluster) {
  unsigned live = 0;
  for (const Block* block : cluster->blocks) live += block == nullptr ? 0 : block->live;
  if (cluster->at_barrier == 0 || cluster->at_barrier != live) return;
  cluster->at_barrier = 0;
  ++cluster->generation;
  for (const Block* block : cluster->blocks) {
    if (block != nullptr) MakeAllReady(block->fibers);
  }
}

void ClusterBarrier(const char* file, int line) {
  CheckWaited();
  Fiber* const fiber = Current();
  Cluster* const cluster = fiber->home->cluster.get();
  char* const barrier = &cluster->barrier[cluster->generation & 1];
  fiber->file = file;
  fiber->line = line;
  ++cluster->at_barrier;
  TsanRelease(barrier);
  TryReleaseCluster(cluster);
  RunAnother();
  TsanAcquire(barrier);
  fiber->file = nullptr;
}

const void* SharedOfPeer(const void* p, unsigned rank) {
  const Block& mine = *Current()->home;
  const Cluster& cluster = *mine.cluster;
  if (rank >= cluster.blocks.size()) Fail("a cluster has no block of this rank");
  if (cluster.generation == 0) Fail("shared memory of a peer is read before a cluster's barrier");
  const Block* const peer = cluster.blocks[rank];
  if (peer == nullptr) Fail("shared memory of a block that has ended is read");
  return peer->shared + (static_cast<const char*>(p) - mine.shared);
}

}  // namespace coppice::kernels::cuda::simt
