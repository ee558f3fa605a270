// For tests: the draft service with a tiny EAGLE-3 head, leaders that send it states of a target
// that exists only in path_states.h, and the forests that the head should grow, each row computed
// anew from its whole path.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decoding/drafter.h"
#include "decoding/method.h"
#include "sampling/rng.h"
#include "tests/draft_node/draft_service_fixture.h"
#include "tests/draft_node/path_states.h"
#include "tests/testing/tiny_eagle3.h"

namespace coppice::draft_node {

struct HeadCase {
  const char* method;
  int beams;
  int width;
};
// Seeded forests of beams, forests with proposals, a path, and a tree with proposals.
inline const HeadCase kHeadCases[] = {{"gumbel_coupling", 3, 4},
                                      {"dsbd", 3, 4},
                                      {"block_verification", 1, 1},
                                      {"recursive_rejection", 1, 3}};

// Loads a head of a tiny Llama; `dir` gets both.
inline std::unique_ptr<model::ModelRunner> LoadTinyHead(const std::string& dir,
                                                        comm::Communicator* communicator,
                                                        int64_t kv_bytes = 1 << 20) {
  const std::string target = dir + "/target", head = dir + "/head";
  for (const std::string& folder : {target, head}) std::filesystem::create_directories(folder);
  test::TinyLlamaOptions tiny;
  tiny.vocab = kVocab;
  tiny.layers = 4;
  const test::TinyLlama model = test::MakeTinyLlama(tiny);
  test::WriteTinyLlama(model, target);
  test::WriteTinyLlama(test::MakeTinyEagle3(model), head);
  model::ModelRunnerOptions options;
  options.dir = head;
  options.target = target;
  options.kv_bytes = kv_bytes;
  options.threads = 1;
  auto runner = model::ModelRunner::Load(options, communicator);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return *std::move(runner);
}

// What a leader knows of a session.
struct LeaderSession {
  uint64_t id = 0;
  DecodedSequence sequence;
  KnownRows known;
  size_t stable_sent = 0;
  int states_sent = 1;  // rows before it have been sent by themselves
  uint32_t round = 0;
  decoding::DraftRequest asked;
};

class HeadServiceTest : public DraftServiceTest {
 protected:
  HeadServiceTest()
      : DraftServiceTest("direct://127.0.0.1:*",
                         [](const std::string& dir, comm::Communicator* single) {
                           return LoadTinyHead(dir, single);
                         }),
        fresh_(LoadTinyHead(fresh_dir_.path(), single_.get())),
        states_(runner_->config().hidden_size) {}

  static decoding::DecodingParams ParamsOf(const HeadCase& head_case) {
    decoding::DecodingParams params;
    if (head_case.beams > 1) params.kind = sampling::DecodingKind::kBeamSampling;
    params.method = decoding::FindMethod(head_case.method);
    params.beam_width = head_case.beams;
    params.seed = 7;
    return params;
  }
  void Serve(int max_rows, int prefill_chunk, int max_sessions = 8) {
    DraftServiceOptions options;
    options.announce_within_s = kAlways;
    options.max_rows = max_rows;
    options.prefill_chunk = prefill_chunk;
    options.max_sessions = max_sessions;
    service_ =
        std::make_unique<DraftService>(options, runner_.get(), leaders_.get(), nullptr, &clock_);
  }

  // ---- commands
  void OpenSession(const LeaderSession& session, const decoding::DecodingParams& params,
                   const Tokens& stable = {}) {
    proto::DraftCommand command;
    command.mutable_open()->set_session_id(session.id);
    command.mutable_open()->mutable_prompt()->Assign(session.sequence.prompt.begin(),
                                                     session.sequence.prompt.end());
    command.mutable_open()->mutable_stable_tokens()->Assign(stable.begin(), stable.end());
    *command.mutable_open()->mutable_decoding() = proto::DecodingToMessage(params);
    Send(command);
  }
  // Rows [session.states_sent, end) of `tokens`.
  void SendStates(LeaderSession* session, const Tokens& tokens, int end) {
    if (session->states_sent >= end) return;
    proto::DraftCommand command;
    command.mutable_states()->set_session_id(session->id);
    *command.mutable_states()->mutable_states() = proto::StatesToMessage(
        states_.OfRows(tokens, session->states_sent, end - session->states_sent));
    session->states_sent = end;
    Send(command);
  }
  // Sends the prompt's states too, if they have not been sent.
  void Ask(LeaderSession* session, int width, int depth) {
    const auto prompt = static_cast<int>(session->sequence.prompt.size());
    SendStates(session, session->sequence.prompt, prompt);
    session->asked = session->sequence.Ask(width, depth, session->stable_sent);
    session->asked.session_id = session->id;
    session->asked.round = ++session->round;
    session->asked.states =
        StatesFor(session->sequence, session->asked, session->known, session->states_sent, states_);
    session->stable_sent = session->asked.stable_length;
    proto::DraftCommand command;
    *command.mutable_draft() = proto::DraftRequestToMessage(session->asked);
    Send(command);
  }

  // ---- what the head should draft
  // The forest of the session's last request, as message.
  std::string Recomputed(const LeaderSession& session, const decoding::DecodingParams& given) {
    decoding::DecodingParams params = given;
    const DecodedSequence& sequence = session.sequence;
    decoding::SetPrompt(sequence.prompt, &params);
    decoding::DraftState state = session.asked.state;
    state.root_hash = RootHashes(sequence);
    state.root_format_state.assign(sequence.roots.size(), 0);
    auto drafter = decoding::MakeDrafter(params, state, session.asked.width);
    EXPECT_TRUE(drafter.ok()) << drafter.status();
    for (int level = 0; level < session.asked.depth && !(*drafter)->frontier().empty(); ++level) {
      std::vector<sampling::Distribution> rows;
      for (const TreePlace place : (*drafter)->frontier()) {
        const decoding::DraftForest& forest = (*drafter)->forest();
        Tokens path = sequence.prompt;
        const Tokens& root = sequence.roots[Index(forest.RootOf(place))];
        path.insert(path.end(), root.begin(), root.end());
        const size_t known = path.size();
        forest.AppendPath(place, &path);
        const Tokens generated(path.begin() + sequence.prompt.size(), path.end());
        rows.push_back(decoding::DraftRow(LogitsAfter(path, known), params, generated));
      }
      (*drafter)->Grow(rows);
    }
    return proto::ForestToMessage((*drafter)->Sent()).SerializeAsString();
  }

 private:
  static std::vector<uint64_t> RootHashes(const DecodedSequence& sequence) {
    std::vector<uint64_t> hashes;
    for (const Tokens& root : sequence.roots) {
      hashes.push_back(sampling::kRootHash);
      for (const TokenId token : root) hashes.back() = sampling::ExtendHash(hashes.back(), token);
    }
    return hashes;
  }
  // Of the last row of a path. Tokens before `known` are the target's: their rows have its states.
  std::vector<float> LogitsAfter(const Tokens& path, size_t known) {
    model::BlockManager* blocks = fresh_->blocks();
    const model::SequenceHandle sequence = blocks->Open({}, nullptr);
    model::KvNode node = model::kPrefixEnd;
    std::vector<float> logits;
    for (size_t done = 1; done < path.size();) {
      model::StepBuilder step = fresh_->NewStep();
      const size_t end = done < known ? known : done + 1;
      int need = 0;
      for (; done < end; ++done) {
        node = *blocks->AddNode(sequence, node, path[done]);
        if (done + 1 < end) {
          step.AddNodeRow(sequence, node, path[done]);
        } else {
          need = step.AddNodeRow(sequence, node, path[done], RowNeed());
        }
        if (done >= known) continue;
        std::vector<uint16_t> state;
        states_.Append(absl::MakeConstSpan(path).first(done), &state);
        step.SetState(step.rows() - 1, state);
      }
      EXPECT_TRUE(fresh_->Submit(std::move(step)).ok());
      const auto rows = fresh_->Wait();
      EXPECT_TRUE(rows.ok()) << rows.status();
      const absl::Span<const float> whole = (*rows)->Whole(need);
      logits.assign(whole.begin(), whole.end());
    }
    blocks->Close(sequence);
    return logits;
  }

 protected:
  test::TempDir fresh_dir_;
  std::unique_ptr<model::ModelRunner> fresh_;
  PathStates states_;
};

}  // namespace coppice::draft_node
