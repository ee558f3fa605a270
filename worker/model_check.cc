#include "worker/model_check.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/draft_checkpoint.h"
#include "model/load_transformer.h"
#include "model/model_config.h"
#include "model/target_states.h"
#include "model/weights.h"
#include "tokenizer/chat_template/template_source.h"
#include "tokenizer/vocabulary.h"

namespace coppice::worker {
namespace {

using model::ModelConfig;

std::string Gigabytes(double bytes) { return absl::StrFormat("%.2f GB", bytes / 1e9); }

std::string ShapeLine(const std::string& dir, const ModelConfig& config) {
  int windows = 0;
  for (const model::LayerParts& layer : config.layers) windows += layer.window > 0;
  std::string line = absl::StrCat(
      dir, ": ", config.architecture, ", ", config.num_layers, " layers of ", config.hidden_size,
      ", ", config.num_heads, " heads of ", config.head_dim, " (", config.num_kv_heads,
      " of K and V), vocabulary ", config.vocab_size, ", context ", config.max_positions);
  if (windows > 0) absl::StrAppend(&line, ", ", windows, " layers with a window");
  if (config.experts.count > 0) {
    absl::StrAppend(&line, ", ", config.experts.chosen, " of ", config.experts.count,
                    " experts of a layer for each token");
  }
  return line;
}

std::string TokenizerLine(const std::string& dir) {
  const auto vocabulary = tokenizer::Vocabulary::Load(dir);
  if (!vocabulary.ok()) return absl::StrCat("tokenizer: none, ", vocabulary.status().message());
  std::string line = absl::StrCat("tokenizer: ", (*vocabulary)->size(), " ids");
  const auto chat = tokenizer::FindTemplate(dir, "");
  if (!chat.ok()) return absl::StrCat(line, "; chat template: ", chat.status().message());
  return absl::StrCat(line, chat->text.empty() ? "; no chat template, so completions alone"
                                               : "; with a chat template");
}

// What a draft is, if it takes states. "": it takes none.
std::string HeadText(const ModelConfig& draft) {
  if (!draft.takes_states()) return "";
  const bool eagle = draft.states.use == model::TargetStates::Use::kBesideEmbedding;
  return absl::StrCat(", ", eagle ? "an EAGLE-3 head" : "a block drafter", " on layers ",
                      absl::StrJoin(draft.states.layers, ", "), " of the target, ",
                      draft.draft_vocab_size > 0 ? draft.draft_vocab_size : draft.vocab_size,
                      " ids");
}

// The states that are kept with KV, if any.
std::vector<std::string> StateLines(const model::LoadEstimate& estimate, const std::string& draft) {
  if (estimate.state_columns == 0) return {};
  return {absl::StrCat("states: outputs of layers ", absl::StrJoin(estimate.states.layers, ", "),
                       " joined to ", estimate.state_columns, " values for ", draft, ", ",
                       2 * estimate.state_columns, " bytes of the KV of a token")};
}

// Lines of memory, and of what windows keep. The beams have a prefix in common: all of their tokens,
// or none. Where they part they keep all tokens, whatever the windows.
std::vector<std::string> MemoryLines(const model::LoadEstimate& estimate, int ranks,
                                     const CheckedUse& use) {
  const model::KvLayout& layout = estimate.kv_layout;
  const double page = static_cast<double>(estimate.kv_token_bytes) / estimate.config.num_layers *
                      layout.layers * kBlockSize;
  const double one = page * static_cast<double>(layout.PagesOf(use.tokens));
  const double apart = page * layout.groups() * use.tokens / kBlockSize * use.beams;
  std::string line = "memory";
  if (ranks > 1) absl::StrAppend(&line, " of each of ", ranks, " ranks");
  absl::StrAppend(&line, ": weights ", Gigabytes(estimate.memory.weights), ", activations ",
                  Gigabytes(estimate.memory.activations));
  absl::StrAppend(&line, ", KV (", kernels::DTypeName(estimate.kv_dtype), ") ", Gigabytes(one),
                  " to ", Gigabytes(use.beams == 1 ? one : apart), " for ", use.beams, " beams of ",
                  use.tokens, " tokens, as much as they share");
  if (layout.windows.empty()) return {line};
  std::string windows = "KV pages of 16 tokens in ";
  absl::StrAppend(&windows, layout.layers, " layers, ", layout.groups(),
                  " for a block: windows keep ",
                  absl::StrFormat("%.0f %%", 100 * one * use.beams / std::max(apart, 1.0)),
                  " of a sequence of ", use.tokens, " tokens");
  return {line, windows};
}

}  // namespace

absl::Status CheckTarget(const std::string& dir) {
  const auto config = model::ReadModelConfig(dir);
  if (!config.ok() || !config->takes_states()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      dir, ": ", config->architecture, " is a draft that takes hidden states of its target, ",
      "expected a target; give the target here, and this to --draft, or to coppice-draft"));
}

absl::Status CheckDraft(const std::string& target, const ModelConfig& config,
                        const std::string& draft) {
  COPPICE_ASSIGN_OR_RETURN(const ModelConfig of_draft, model::ReadDraftConfig(draft, target));
  COPPICE_ASSIGN_OR_RETURN(const auto checkpoint, model::OpenCheckpoint(draft, of_draft, target));
  COPPICE_RETURN_IF_ERROR(model::CheckTensors(of_draft, checkpoint.get()));
  COPPICE_RETURN_IF_ERROR(model::CheckJoiningTensors(of_draft, checkpoint.get()));
  if (of_draft.vocab_size != config.vocab_size) {
    return absl::FailedPreconditionError(absl::StrCat(draft, ": the vocabulary has ",
                                                      of_draft.vocab_size, " ids, expected the ",
                                                      config.vocab_size, " of ", target));
  }
  const auto texts = tokenizer::Vocabulary::Load(target);
  const auto own = tokenizer::Vocabulary::Load(draft);
  if (!texts.ok() || !own.ok()) return absl::OkStatus();  // a draft needs no tokenizer
  for (TokenId id = 0; id < std::min((*texts)->size(), (*own)->size()); ++id) {
    if ((*texts)->Bytes(id, false) == (*own)->Bytes(id, false)) continue;
    return absl::FailedPreconditionError(absl::StrCat(draft, ": token ", id,
                                                      " has another text than in ", target,
                                                      ", expected the same vocabulary"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckModel(const model::ModelRunnerOptions& options, int ranks,
                                       const CheckedUse& use) {
  COPPICE_RETURN_IF_ERROR(CheckTarget(options.dir));
  std::string head;
  if (!use.draft.empty()) {
    COPPICE_ASSIGN_OR_RETURN(const ModelConfig draft,
                             model::ReadDraftConfig(use.draft, options.dir));
    head = HeadText(draft);
  }
  const auto communicator = comm::MakeSingleCommunicator();
  ThreadTeam threads(1);
  kernels::BackendOptions backend_options;
  backend_options.threads = &threads;
  backend_options.communicator = communicator.get();
  COPPICE_ASSIGN_OR_RETURN(const auto backend, kernels::MakeBackend(backend_options));
  model::LoadOptions load;
  load.dir = options.dir;
  load.dtype = options.dtype;
  load.weight_dtype = options.weight_dtype;
  load.kv_dtype = options.kv_dtype;
  load.max_rows = options.max_rows;
  load.states_for = head.empty() ? options.states_for : use.draft;
  COPPICE_ASSIGN_OR_RETURN(const model::LoadEstimate estimate,
                           model::EstimateLoad(load, *backend, ranks));
  const ModelConfig& config = estimate.config;
  COPPICE_ASSIGN_OR_RETURN(const auto checkpoint, model::Checkpoint::Open(options.dir));
  COPPICE_RETURN_IF_ERROR(model::CheckTensors(config, checkpoint.get()));
  std::vector<std::string> lines = {ShapeLine(options.dir, config)};
  std::vector<std::string> unused = checkpoint->UnusedNames();
  unused.erase(
      std::remove(unused.begin(), unused.end(), absl::StrCat(config.names.head, ".weight")),
      unused.end());  // a tied head may be stored, too
  lines.push_back(absl::StrCat("weights: ", estimate.weight_types, " in memory",
                               unused.empty() ? ""
                                              : absl::StrCat("; ", unused.size(),
                                                             " tensors that nothing reads, "
                                                             "such as ",
                                                             unused[0])));
  lines.push_back(TokenizerLine(options.dir));
  for (std::string& line : MemoryLines(estimate, ranks, use)) lines.push_back(std::move(line));
  for (std::string& line : StateLines(estimate, load.states_for)) lines.push_back(std::move(line));
  if (!use.draft.empty()) {
    COPPICE_RETURN_IF_ERROR(CheckDraft(options.dir, config, use.draft));
    lines.push_back(absl::StrCat("draft: ", use.draft, " fits", head));
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace coppice::worker
