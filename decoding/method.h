// The one table of speculation methods: name -> drafter, verifier, law, what it admits and what it
// ships. The API validates against it and GET /v1/models lists it; MakeBeamDecoder and MakeDrafter
// dispatch on it. A new method is one row here and one pair of files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "decoding/params.h"

namespace coppice {

class BeamDecoder;
class Drafter;
struct DraftForest;
struct DraftState;

// What `draft_width` means to a method's drafter, and whether the request may name a static tree.
enum class DraftForm {
  kLevels,  // W_S nodes (or draws) a layer, chosen by the drafter
  kPath,    // one path: the width is 1
  kTree,    // children per node: draft_tree, or W_S below the root and one child below each
  kNone,    // nothing is drafted
};

struct MethodRow {
  absl::string_view name;  // "pf_gumbel"
  std::vector<DecodingKind> serves;
  absl::string_view law;        // "multinomial sampling (3.1)"; what is lossy says "lossy: ..."
  absl::string_view law_given;  // condition of the law: "" or "fixed width"
  bool lossless;                // law = the decoding kind's, under that condition
  bool reproducible;            // same text as plain at equal seed
  bool joint_warps;             // admits JOINT and ROWCUT besides the row modes
  DraftForm form;
  absl::string_view ships;  // from the draft node: "tree", "tree and proposals"
  // Fields that only some methods read: those of `speculative`, and beam_duplicates.
  std::vector<std::string> options;
  absl::string_view source;  // section of docs/algorithms.md
  // Both are given checked parameters whose kind the row serves.
  std::unique_ptr<BeamDecoder> (*make_decoder)(const DecodingParams& params);
  std::unique_ptr<Drafter> (*make_drafter)(const DecodingParams& params, const DraftState& state,
                                           int width);
  // What the verifier needs of a forest beyond DraftForest::Validate; nullptr: nothing.
  absl::Status (*check_forest)(const DraftForest& forest) = nullptr;
  int most_children = 0;     // kTree: what one node may have; 0 = any number
  bool greedy_only = false;  // serves multinomial at temperature 0 alone

  bool reads(absl::string_view option) const;
};

absl::Span<const MethodRow> Methods();                // "none" is not listed
const MethodRow* FindMethod(absl::string_view name);  // nullptr when unknown

// "auto" -> the first method that serves the kind, the warp and beam_duplicates; "none" stays.
// InvalidArgument: unknown, or does not serve one of them.
absl::StatusOr<std::string> ResolveMethod(absl::string_view method, const DecodingParams& params);

}  // namespace coppice
