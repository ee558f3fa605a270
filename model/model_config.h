// A decoder-only transformer as data: its sizes and its parts, read from config.json of a Hugging
// Face folder by the reader of its family (families/family.h). Loader, transformer and memory
// prediction know nothing of families but this.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"
#include "kernels/backend.h"
#include "model/json_file.h"
#include "model/tensor_names.h"

namespace coppice::model {

// Where the norms of a layer are. f: attention or the MLP.
enum class NormPlace {
  kBefore,    // x += f(norm(x))
  kAround,    // x += norm(f(norm(x)))
  kAfter,     // x += norm(f(x))
  kAfterSum,  // x = norm(x + f(x)); there is no final norm
};

// What differs between the layers of a model.
struct LayerParts {
  int window = 0;        // a row sees the last `window` positions, its own included; 0: all
  int rope = 0;          // index into ropes; -1: positions do not rotate
  bool experts = false;  // instead of one MLP
};

// A mixture of experts: what layers with experts have instead of an MLP.
struct ExpertParts {
  int count = 0;            // 0: the model has none
  int size = 0;             // the intermediate size of an expert
  int chosen = 0;           // experts of a row
  bool normalised = false;  // the shares of the chosen experts are divided by their sum
};

// What a draft takes of the hidden states of its target (docs/models.md, "Drafts").
struct TargetStates {
  enum class Use {
    kNone,
    kBesideEmbedding,  // EAGLE-3: a row begins with its embedding and the state of the token before
    kContext,          // DFlash: K and V of the context are made of its states
  };
  // RMS norms of the states before the draft's first matrix joins them.
  enum class Norm {
    kNone,
    kEach,   // of each layer's state: gains fc_norm.I [size]
    kWhole,  // of those of all layers as one vector: gain input_norm [layers * size]
  };
  Use use = Use::kNone;
  // Layers of the target whose outputs are joined, from 0, in the order of the columns of `fc`. Of
  // the residual stream, before any norm. Empty: the default of the format, which needs the number
  // of the target's layers (model/target_states.h).
  std::vector<int> layers;
  int size = 0;  // hidden size of the target
  Norm norm = Norm::kNone;
  // Of an EAGLE-3 head: its residual stream begins with the normed state; what a row hands on to the
  // next is its output after the final norm.
  bool normed_residual = false;
  bool normed_output = false;
  // Nothing depends on max_positions: as many are served as the target has.
  bool any_positions = false;

  // How many layers are joined.
  int count() const { return layers.empty() ? 3 : static_cast<int>(layers.size()); }
};

// A draft that predicts the tokens of a block in one pass: its rows are a known token and masks, each
// sees all the others, and K and V of the context are made of the target's states (DFlash, DSpark).
struct BlockDraft {
  int size = 0;      // most rows of a block; 0: the model is no such draft
  TokenId mask = 0;  // stands for a token that is not known yet
  // Whether a row predicts the token of its own place (DFlash) or of the next one (DSpark).
  bool in_place = false;
  // Columns of markov_w1 and markov_w2, a bias of the logits by the token before; 0: there is none.
  int markov_rank = 0;

  int depth() const { return in_place ? size - 1 : size; }  // tokens that a block predicts
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string model_type;    // "llama"
  TensorNames names;

  int vocab_size = 0;
  int hidden_size = 0;
  int embedding_size = 0;  // columns of embedding and head; hidden_size if they are not projected
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int max_positions = 0;

  kernels::NormKind norm = kernels::NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  bool norm_bias = false;
  float norm_epsilon = 1e-5f;
  float gain_offset = 0;           // added to the gains of the checkpoint
  bool qk_norm = false;            // a norm of each q and k head
  bool whole_qk_norm = false;      // with qk_norm: of all heads together
  bool parallel_residual = false;  // x += attention(norm(x)) + MLP(other norm(x)); kBefore alone

  bool attention_bias = false;  // on q, k, v
  bool output_bias = false;     // on the attention output
  float attention_scale = 0;    // of the scores
  float attention_softcap = 0;  // 0: none
  std::vector<kernels::RopeConfig> ropes;
  std::vector<LayerParts> layers;  // [num_layers]
  int position_offset = 0;  // of learned positions: rows of their matrix before that of position 0

  kernels::Activation activation = kernels::Activation::kSilu;
  bool gated_mlp = true;
  bool mlp_bias = false;
  ExpertParts experts;

  float embedding_scale = 1;  // multiplies the embedding of a token
  float residual_scale = 1;   // multiplies what attention and MLP add
  float logit_scale = 1;      // multiplies the logits
  float logit_softcap = 0;    // then cap * tanh(logit / cap); 0: none
  bool tied_head = false;
  // Rows of a draft vocabulary, which has only the ids that tensor d2t lists (draft_vocabulary.h);
  // the logits of the others are -infinity. 0: the head has all.
  int draft_vocab_size = 0;
  TargetStates states;
  BlockDraft block;
  kernels::DType checkpoint_dtype = kernels::DType::kF32;  // torch_dtype
  std::vector<TokenId> eos_ids;                            // config.json and generation_config.json

  bool takes_states() const { return states.use != TargetStates::Use::kNone; }
  // Whether a row of the first layer begins with a state beside its embedding.
  bool begins_with_state() const { return states.use == TargetStates::Use::kBesideEmbedding; }
  int qkv_inputs() const { return begins_with_state() ? 2 * hidden_size : hidden_size; }
  bool projects_embedding() const { return embedding_size != hidden_size; }
  bool learned_positions() const { return !names.positions.empty(); }
  // The rows of the matrix of learned positions.
  int position_rows() const { return max_positions + position_offset; }
  // Whether there are norms of what attention and MLP read, and of what they add.
  bool has_in_norms() const { return norm_place != NormPlace::kAfter; }
  bool has_out_norms() const {
    return norm_place == NormPlace::kAround || norm_place == NormPlace::kAfter;
  }
  // Whether attention and MLP write what they add to a tensor of its own, which the next norm adds.
  bool adds_apart(int ranks) const {
    return ranks > 1 || has_out_norms() || residual_scale != 1 || experts.count > 0 ||
           parallel_residual;
  }
};

// Reads config.json of a folder or GGUF file (and generation_config.json for eos ids). Errors name
// the file, the field and what was expected.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir);
// The same from the object of a config.json alone.
absl::StatusOr<ModelConfig> ReadModelConfig(const JsonFile& json);

}  // namespace coppice::model
