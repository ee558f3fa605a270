// Changes valid messages at random: field by field through reflection, and bytes of the serialized
// form. A conversion must give a valid struct or InvalidArgument with a message, and never crash.
// Run it under asan too.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "proto/convert.h"
#include "tests/proto/follow_plan.h"
#include "tests/proto/sample_inputs.h"

namespace coppice::proto {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Random = std::mt19937_64;

int32_t RandomInt(Random& random) {
  switch (random() % 6) {
    case 0:
      return std::numeric_limits<int32_t>::max() - static_cast<int32_t>(random() % 3);
    case 1:
      return std::numeric_limits<int32_t>::min() + static_cast<int32_t>(random() % 3);
    case 2:
      return static_cast<int32_t>(random());
    default:
      return static_cast<int32_t>(random() % 40) - 8;
  }
}

int64_t RandomInt64(Random& random) {
  const int64_t small = RandomInt(random);
  return random() % 4 == 0 ? small * (int64_t{1} << 32) : small;
}

double RandomDouble(Random& random) {
  const double values[] = {0,      -1,   1,   0.5,      -0.5,      1e308, -1e308,
                           1e-320, -0.0, NAN, INFINITY, -INFINITY, 3,     -700};
  return values[random() % std::size(values)];
}

// Sets, adds or removes one value somewhere in the message.
void MutateOnce(Random& random, Message* message) {
  const auto* descriptor = message->GetDescriptor();
  const auto* reflection = message->GetReflection();
  const FieldDescriptor* field = descriptor->field(random() % descriptor->field_count());
  if (field->is_repeated()) {
    const int size = reflection->FieldSize(*message, field);
    const auto kind = random() % 3;
    if (kind == 0 && size > 0) return reflection->RemoveLast(message, field);
    if (kind == 1 || size == 0) {
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          return reflection->AddInt32(message, field, RandomInt(random));
        case FieldDescriptor::CPPTYPE_DOUBLE:
          return reflection->AddDouble(message, field, RandomDouble(random));
        case FieldDescriptor::CPPTYPE_MESSAGE:
          return MutateOnce(random, reflection->AddMessage(message, field));
        default:
          return;
      }
    }
    const int index = static_cast<int>(random() % size);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetRepeatedInt32(message, field, index, RandomInt(random));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetRepeatedDouble(message, field, index, RandomDouble(random));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return MutateOnce(random, reflection->MutableRepeatedMessage(message, field, index));
      default:
        return;
    }
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, RandomInt(random));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(message, field, RandomDouble(random));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, RandomInt64(random));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, random());
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, random() % 2 == 0);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(message, field, random() % 2 == 0 ? "" : "x\xff");
    default:
      return;
  }
}

template <typename MessageType>
void MutateBytes(Random& random, MessageType* message) {
  std::string bytes = message->SerializeAsString();
  for (size_t i = 1 + random() % 4; i > 0 && !bytes.empty(); --i) {
    bytes[random() % bytes.size()] = static_cast<char>(random());
  }
  const google::protobuf::LogSilencer silencer;  // Protobuf logs bad UTF-8
  MessageType changed;
  if (changed.ParseFromString(bytes)) *message = std::move(changed);
}

// Calls convert(message) on `count` changed messages. `convert` returns a StatusOr and itself
// checks what was accepted.
template <typename MessageType, typename Convert>
void Fuzz(uint64_t seed, int count, const MessageType& valid, Convert convert) {
  Random random(seed);
  int accepted = 0;
  for (int i = 0; i < count; ++i) {
    MessageType message = valid;
    if (random() % 4 == 0) {
      MutateBytes(random, &message);
    } else {
      for (size_t k = 1 + random() % 3; k > 0; --k) MutateOnce(random, &message);
    }
    const auto result = convert(message);
    if (result.ok()) {
      ++accepted;
    } else {
      ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
      ASSERT_FALSE(result.status().message().empty());
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, count);
}

TEST(ConvertFuzzTest, Decoding) {
  Fuzz(1, 20000, DecodingToMessage(SampleParams()), [](const proto::Decoding& message) {
    auto params = DecodingFromMessage(message);
    if (params.ok()) {
      EXPECT_TRUE(decoding::CheckParameters(*params).ok()) << decoding::CheckParameters(*params);
      EXPECT_NE(params->method, nullptr);
      EXPECT_EQ(DecodingFromMessage(DecodingToMessage(*params)).status(), absl::OkStatus());
    }
    return params;
  });
}

// Changes only the scalars, since most changes of a whole message are refused for other fields.
TEST(ConvertFuzzTest, Parameters) {
  const proto::Decoding valid = DecodingToMessage(SampleParams());
  Random random(9);
  int accepted = 0, refused = 0;
  std::set<std::string> named;  // the fields that refusals have named
  for (int i = 0; i < 40000; ++i) {
    proto::Decoding message = valid;
    proto::Parameter* changed =
        message.mutable_parameters(static_cast<int>(random() % message.parameters_size()));
    switch (random() % 4) {
      case 0:
        changed->set_name(valid.parameters(random() % valid.parameters_size()).name());
        break;
      case 1:
        MutateBytes(random, changed);
        break;
      default:
        MutateOnce(random, changed);
    }
    const auto params = DecodingFromMessage(message);
    if (params.ok()) {
      ++accepted;
      ASSERT_TRUE(decoding::CheckParameters(*params).ok()) << decoding::CheckParameters(*params);
      continue;
    }
    ++refused;
    ASSERT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string text(params.status().message());
    named.insert(text.substr(0, text.find_first_of(":[")));
    ASSERT_LT(text.size(), 400u);
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.scalar()) {
      EXPECT_EQ(named.count(row.name), 1u) << row.name;
    }
  }
}

TEST(ConvertFuzzTest, Forest) {
  Fuzz(2, 20000, ForestToMessage(SampleForest()), [](const proto::Forest& message) {
    auto forest = ForestFromMessage(message, 100);
    if (forest.ok()) {
      EXPECT_TRUE(forest->Validate(100).ok());
      for (int i = 0; i < forest->size(); ++i) {
        EXPECT_LT(forest->parent[i], TreePlace(NodeId{i}));
        EXPECT_TRUE(forest->Has(forest->parent[i]));
      }
    }
    return forest;
  });
}

TEST(ConvertFuzzTest, DraftRequest) {
  Fuzz(3, 20000, DraftRequestToMessage(SampleRequest()), [](proto::DraftRequest message) {
    static Random random(4);
    if (random() % 2 == 0) MutateOnce(random, message.mutable_state());
    auto back = DraftRequestFromMessage(message, kSampleVocabulary);
    if (back.ok()) {
      const TokenTree& tree = back->roots.tree;
      for (int i = 0; i < tree.size(); ++i) {
        EXPECT_LT(tree.parent[i], TreePlace(NodeId{i}));
        EXPECT_TRUE(tree.Has(tree.parent[i]));
      }
      for (const NodeId end : back->roots.ends) EXPECT_TRUE(tree.Has(end));
      const size_t roots = RootHashes(back->roots, /*shared_hash=*/1).size();
      const decoding::DraftState& state = back->state;
      EXPECT_EQ(roots, state.root_score.size());
      EXPECT_EQ(roots, state.root_multiplicity.size());
      EXPECT_EQ(state.slot_log_prob.size(), state.slot_token.size());
      EXPECT_TRUE(state.slot_token.empty() || state.slot_token.size() == state.slot_root.size());
      for (int root : state.slot_root) EXPECT_LT(static_cast<size_t>(root), roots);
      for (int root : state.known_roots) EXPECT_LT(static_cast<size_t>(root), roots);
      for (const auto& child : state.known_children) {
        EXPECT_LT(static_cast<size_t>(child.root), roots);
        EXPECT_TRUE(std::isfinite(child.score) && std::isfinite(child.key));
      }
    }
    return back;
  });
}

TEST(ConvertFuzzTest, Plan) {
  Fuzz(5, 30000, PlanToMessage(SamplePlan()),
       [](const proto::StepPlan& message) -> absl::StatusOr<coppice::StepPlan> {
         auto plan = PlanFromMessage(message);
         if (!plan.ok()) return plan;
         if (auto status = CheckPlan(*plan, SampleLimits()); !status.ok()) return status;
         FollowPlan(*plan, SampleLimits());
         return plan;
       });
}

TEST(ConvertFuzzTest, Hypothesis) {
  Fuzz(6, 5000, HypothesisToMessage({{4, 5, 2}, -1.25, -0.5, true}),
       [](const proto::Hypothesis& message) { return HypothesisFromMessage(message, 100); });
}

TEST(ConvertFuzzTest, Progress) {
  proto::SequenceUpdate valid;
  valid.add_stable_tokens(4);
  valid.set_finished(true);
  *valid.add_hypotheses() = HypothesisToMessage({{4, 5, 2}, -1.25, -0.5, true});
  *valid.add_hypotheses() = HypothesisToMessage({{4, 5, 7}, -2.5, -0.75, false});
  valid.mutable_stats()->set_method("dsbd");
  Fuzz(7, 20000, valid, [](proto::SequenceUpdate message) {
    static Random random(8);
    if (random() % 2 == 0) MutateOnce(random, message.mutable_stats());
    auto progress = ProgressFromMessage(message, {100, 8, 2, 2});
    if (!progress.ok()) return progress;
    EXPECT_LE(progress->stable_tokens.size(), 6);
    EXPECT_LE(progress->hypotheses.size(), 2);
    for (const decoding::Hypothesis& hypothesis : progress->hypotheses) {
      EXPECT_FALSE(std::isnan(hypothesis.score));
      for (const TokenId token : hypothesis.tokens) EXPECT_LT(static_cast<uint32_t>(token), 100u);
    }
    if (progress->stats) {
      EXPECT_GE(progress->stats->draft_ms, 0);
      EXPECT_LE(progress->stats->plain_rounds, progress->stats->rounds);
    }
    return progress;
  });
}

}  // namespace
}  // namespace coppice::proto
