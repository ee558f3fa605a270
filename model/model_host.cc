#include "model/model_host.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace coppice {
namespace {

// The pool of every rank has as many blocks as rank 0's: block ids are the same everywhere.
absl::StatusOr<int64_t> AgreeOnBlocks(int64_t mine, Communicator* communicator) {
  std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  COPPICE_RETURN_IF_ERROR(communicator->Broadcast(&bytes));
  int64_t blocks = 0;
  std::copy_n(bytes.data(), sizeof blocks, reinterpret_cast<char*>(&blocks));
  return blocks;
}

}  // namespace

absl::StatusOr<ModelHost> LoadModelHost(const ModelHostOptions& options,
                                        Communicator* communicator) {
  const SteadyClock clock;
  const double begin_s = clock.NowSeconds();
  ModelHost host;
  COPPICE_ASSIGN_OR_RETURN(host.backend, MakeBackend(options.backend, options.threads));
  LoadOptions load;
  load.dir = options.dir;
  load.dtype = options.dtype;
  load.max_rows = options.max_rows;
  load.on_layer = [steps = host.steps.get()] { steps->MovesOn(); };
  double last_log_s = begin_s;
  load.progress = [&](double fraction) {
    if (options.on_progress) options.on_progress();
    if (clock.NowSeconds() - last_log_s < 1) return;
    last_log_s = clock.NowSeconds();
    spdlog::info("loading {}: {:.0f} %", options.dir, fraction * 100);
  };
  COPPICE_ASSIGN_OR_RETURN(host.model, Transformer::Load(load, host.backend.get(), communicator));
  const auto block_bytes = static_cast<int64_t>(host.model->kv_block_bytes());
  COPPICE_ASSIGN_OR_RETURN(const int64_t blocks,
                           AgreeOnBlocks(options.kv_bytes / block_bytes, communicator));
  if (blocks < 8) {
    return absl::InvalidArgumentError(absl::StrCat("--kv_bytes: ", options.kv_bytes, " bytes are ",
                                                   blocks, " KV blocks of ", block_bytes,
                                                   " bytes; at least 8 are needed"));
  }
  COPPICE_ASSIGN_OR_RETURN(host.pool, host.backend->MakeKvPool(host.model->kv_shape(blocks)));
  BlockManagerOptions block_options;
  block_options.num_blocks = blocks;
  block_options.scratch_blocks = options.scratch_blocks;
  host.blocks = std::make_unique<BlockManager>(block_options);
  COPPICE_RETURN_IF_ERROR(communicator->Barrier());
  spdlog::info("{} ready in {:.2f} s: {:.1f} MB of weights ({}), {} KV blocks of {} KB, {}",
               options.dir, clock.NowSeconds() - begin_s, host.model->weight_bytes() / 1e6,
               DTypeName(host.model->dtype()), blocks, block_bytes / 1024,
               host.backend->description());
  return host;
}

}  // namespace coppice
