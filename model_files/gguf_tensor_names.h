// The tensors of a GGUF file by the names of the Hugging Face folder of the same model, and what
// the format stores otherwise than the folder. Pure. Called by model/gguf_checkpoint.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::model_files {

// The name in the file of tensor `name` of the folder ("model.layers.3.mlp.up_proj.weight" ->
// "blk.3.ffn_up.weight"). architecture: as GgufArchitecture. "": the format has no such tensor.
std::string GgufTensorName(absl::string_view architecture, absl::string_view name);

// The number of the expert whose matrix tensor `name` of the folder is. The file stacks those of all
// experts of a layer in one tensor, [experts, rows, columns], which has the name above.
std::optional<int> ExpertOf(absl::string_view name);

// Its name in old files, which have a tensor for each expert ("blk.3.ffn_up.5.weight").
std::string GgufExpertName(absl::string_view name);

// Whether the rows of the tensor of the folder are those of query or key heads which the file
// interleaves: it rotates neighbours, so within each head it stores rows 0, d/2, 1, d/2 + 1, ...
bool HasInterleavedHeads(absl::string_view architecture, absl::string_view name);

// Row of the file, within a head of `head_dim` rows, of row `row` of the folder.
int64_t InterleavedRow(int64_t row, int64_t head_dim);

// What the file adds to each element of the folder's tensor: 1 for the gains of Gemma, else 0.
float AddedToGain(absl::string_view architecture, absl::string_view name);

}  // namespace coppice::model_files
