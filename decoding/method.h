// The table of speculation methods: name -> drafter, verifier, distribution, what it serves and
// what it sends. The coordinator looks a request's method up once; from then on it is a row. GET
// /v1/models lists the rows; MakeBeamDecoder and MakeDrafter dispatch on them. A new method is one
// row here and its own files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "decoding/params.h"
#include "decoding/tree/child_sampling.h"
#include "decoding/tree/node_rule.h"
#include "plan/forest_plan.h"

namespace coppice::decoding {

class BeamDecoder;
class Drafter;
struct DraftForest;
struct DraftState;

// What `draft_width` means to a method's drafter, and whether the request may give a static tree.
enum class DraftForm {
  kLevels,  // W_S nodes (or draws) a layer, chosen by the drafter
  kPath,    // one path: the width is 1
  kTree,    // children per node: draft_tree, or W_S below the root and one child below each
  kNone,    // nothing is drafted
};

struct MethodRow {
  absl::string_view name;  // "gumbel_coupling"
  std::vector<sampling::DecodingKind> serves;
  absl::string_view distribution;        // "multinomial sampling (3.1)"; or "lossy: ..."
  absl::string_view distribution_given;  // condition of the distribution: "" or "fixed width"
  bool lossless;                         // the distribution is the decoding's, under that condition
  bool reproducible;                     // same text as without drafts at equal seed
  bool joint_sampling;                   // serves JOINT and ROWCUT besides the row modes
  bool scheduled_width;                  // serves a width for each layer
  DraftForm form;
  absl::string_view sends;  // what the draft node sends: "tree", "tree and proposals"
  // The optional fields that it reads: fields of `speculative` that not all methods read, and
  // beam_duplicates.
  std::vector<std::string> options;
  absl::string_view source;  // section of docs/algorithms.md
  // Both receive checked parameters of a kind that the row serves.
  std::unique_ptr<BeamDecoder> (*make_decoder)(const DecodingParams& params);
  std::unique_ptr<Drafter> (*make_drafter)(const DecodingParams& params, const DraftState& state,
                                           int width);
  // Checks what the verifier needs beyond DraftForest::Validate; nullptr: nothing.
  absl::Status (*check_forest)(const DraftForest& forest) = nullptr;
  int most_children = 0;  // kTree: the most children of a node; 0 = any number
  // For methods that verify the children of a node by a rule (4.6): the rule and the children's
  // distribution.
  NodeRule node_rule = nullptr;
  ChildSampling child_sampling = ChildSampling::kIid;
  bool greedy_only = false;  // serves multinomial only at temperature 0
  // How a device may choose the drafter's levels (device_drafting.h); nullptr: it may not.
  DeviceDrafting::Kind (*device_drafting)(const DecodingParams& params) = nullptr;

  bool reads(absl::string_view option) const;
};

absl::Span<const MethodRow> Methods();
// Whether a row serves the decoding in this sampling scope.
bool IsServed(sampling::DecodingKind kind,
              sampling::SamplingScope scope = sampling::SamplingScope::kRow);
const MethodRow* FindMethod(absl::string_view name);  // nullptr when unknown

// The first row that serves the kind, the sampling parameters and beam_duplicates. InvalidArgument:
// none does.
absl::StatusOr<const MethodRow*> FirstMethod(const DecodingParams& params);
// InvalidArgument: the row does not serve one of them; the text names both.
absl::Status CheckServes(const MethodRow& row, const DecodingParams& params);
// params.method, checked to serve the parameters, or FirstMethod if it is nullptr. Called once per
// request, by the coordinator. Messages carry the row's name.
absl::StatusOr<const MethodRow*> ResolveMethod(const DecodingParams& params);
// The name in answers and statistics: the row's, "none" when plain, "auto" when not resolved.
absl::string_view MethodName(const DecodingParams& params);

}  // namespace coppice::decoding
