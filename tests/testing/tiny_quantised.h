// Small checkpoints whose matrices are quantised as the tools of Hugging Face folders do it, by code
// that shares nothing with model/. The codes are the nearest ones, without any search for better.
//   const TinyQuantised made = Quantise(MakeTinyLlama({.hidden = 64}), {.layout = "gptq"});
//   WriteTinyLlama(made.folder, dir.path());
#pragma once

#include <string>

#include "tests/testing/tiny_llama.h"

namespace coppice::test {

struct QuantisedOptions {
  std::string layout;     // gptq, awq, packed, int8, fp8 (of compressed-tensors), fp8_blocks
  int bits = 4;           // of gptq and packed
  int group = 32;         // inputs that share a scale; -1: all. Of gptq, awq and packed.
  bool symmetric = true;  // of gptq and packed; awq never is, the others are
  bool v2 = false;        // of gptq: the zeros as they are
  bool indices = false;   // of gptq: desc_act, with g_idx in the order of the inputs
  std::string scale_dtype = "F16";  // F32, F16 or BF16
  bool one_scale = false;           // of int8 and fp8: for the matrix
};

struct TinyQuantised {
  TinyLlama folder;
  TinyLlama values;  // what its tensors stand for, in F32
};

// Quantises the matrices of layers, but for routers and those whose columns are no multiple of 32.
TinyQuantised Quantise(const TinyLlama& model, const QuantisedOptions& options);

}  // namespace coppice::test
