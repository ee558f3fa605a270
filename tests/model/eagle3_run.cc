#include "tests/model/eagle3_run.h"

namespace coppice::model {
namespace {

double Uniform(uint64_t i) { return (sampling::Finalize(i + 77) >> 11) * 0x1p-53; }

}  // namespace

State TrueState(uint64_t number, int columns) {
  State state(columns);
  for (int c = 0; c < columns; ++c) {
    state[c] = kernels::FloatToBf16(
        static_cast<float>(4 * Uniform(number * 4096 + static_cast<uint64_t>(c)) - 2));
  }
  return state;
}

std::vector<double> ValuesOf(const State& state) {
  std::vector<double> values;
  for (const uint16_t bits : state) values.push_back(kernels::Bf16ToFloat(bits));
  return values;
}

std::vector<int> EveryThirdId() {
  std::vector<int> ids;
  for (int id = 1; id < kHeadVocab; id += 3) ids.push_back(id);
  return ids;
}

test::TinyLlama HeadTarget() {
  return test::MakeTinyLlama(
      {.hidden = 64, .layers = 8, .vocab = kHeadVocab, .max_positions = 128});
}

test::TinyLlama HeadOf(const HeadShape& shape, const test::TinyLlama& target) {
  test::TinyLlama head = test::MakeTinyEagle3(target, shape.head);
  if (shape.is_speculator) test::StoreAsSpeculator(&head);
  const auto gain = [&](const std::string& name, int64_t size) {
    head.tensors[name] = test::tiny_llama::RandomTensor(name, {size}, shape.head.dtype, 1, 0.2, 5);
  };
  for (const auto& [field, value] : shape.fields) {
    test::SetConfig(&head, field, value);
    if (std::string(field) == "norm_before_fc") gain("input_norm.weight", 3 * 64);
    if (std::string(field) != "fc_norm") continue;
    for (int i = 0; i < 3; ++i) gain("fc_norm." + std::to_string(i) + ".weight", 64);
  }
  if (std::string(shape.name) == "Qwen3") {
    for (const char* norm : {"q_norm", "k_norm"})
      gain(std::string("midlayer.self_attn.") + norm + ".weight", shape.head.head_dim);
  }
  return head;
}

std::vector<HeadShape> HeadShapes() {
  const test::TinyEagle3Options small = {.ids = EveryThirdId()};
  // Llama-3.1-8B and Qwen3-8B heads with a 32nd of their hidden sizes.
  test::TinyEagle3Options llama = {.ids = EveryThirdId(), .heads = 2, .kv_heads = 1};
  llama.head_dim = 128, llama.intermediate = 224;
  test::TinyEagle3Options wide = {.ids = EveryThirdId(), .has_embedding = true, .hidden = 96};
  wide.head_dim = 32;
  const auto with = [](test::TinyEagle3Options options, const char* dtype) {
    options.dtype = dtype;
    return options;
  };
  return {
      {"Whole", {}},
      {"Reduced", small},
      {"Llama", llama},
      {"Qwen3", llama},
      {"WiderThanItsTarget", wide},
      {.name = "Speculator", .head = small, .is_speculator = true},
      {.name = "Window",
       .head = small,
       .fields = {{"layer_types", R"(["sliding_attention"])"}, {"sliding_window", "6"}}},
      {.name = "NormedResidual", .head = small, .fields = {{"norm_before_residual", "true"}}},
      {.name = "NormedOutput",
       .head = small,
       .fields = {{"norm_output", "true"}, {"norm_before_fc", "true"}}},
      {.name = "AllNorms",
       .head = small,
       .fields = {{"norm_output", "true"}, {"norm_before_residual", "true"}, {"fc_norm", "true"}}},
      {.name = "Half", .head = with(llama, "F16")},
      {.name = "Bf16", .head = with(llama, "BF16"), .relative = 2e-2},
      {.name = "Int8", .head = with(llama, "BF16"), .weight_dtype = "int8", .relative = 0.1},
      {.name = "Int4", .head = with(llama, "BF16"), .weight_dtype = "int4", .relative = 0.3},
      {.name = "Int8Kv", .head = llama, .kv_dtype = "int8", .relative = 5e-2},
  };
}

void ReadPrompt(HeadRun* run) {
  uint64_t next = 0;
  for (const int chunk : {1, 17, 9, 2}) {
    run->Prefix(chunk, next, /*needs=*/chunk != 17);
    next += chunk;
    run->Run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

void GrowForests(HeadRun* run) {
  uint64_t next = 1000;
  const auto truth = [&] { return TrueState(next++, run->columns()); };
  run->Prefix(19, /*first_state=*/0, /*needs=*/false);
  const State of_first = truth(), of_second = truth();
  //      a        b
  //     / \       |
  //    c   d      e
  //   / \         |
  //  f   g        h
  const int a = run->Node(-1, 7, &of_first), b = run->Node(-1, 9, &of_second);
  run->Run();
  const int c = run->Node(a, 11, nullptr);
  run->Node(a, 12, nullptr);
  const int e = run->Node(b, 11, nullptr);
  run->Run();
  run->Node(c, 20, nullptr);
  run->Node(c, 21, nullptr);
  run->Node(e, 22, nullptr);
  run->Run();
  if (testing::Test::HasFatalFailure()) return;
  // a, c are accepted and a token after them: c and what is below it are dropped.
  run->Retain({a});
  run->Commit(a);
  const State of_c = truth(), of_root = truth();
  const int again = run->Node(-1, 11, &of_c, /*needs=*/false);
  const int root = run->Node(again, 50, &of_root);
  run->Run();
  const int i = run->Node(root, 3, nullptr);
  run->Run();
  run->Node(i, 4, nullptr);
  run->Node(i, 5, nullptr);
  run->Run();
}

}  // namespace coppice::model
