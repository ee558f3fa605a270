// A small Llama or Qwen2 checkpoint as a GGUF file, as converters write it: the rows of query and
// key heads of a Llama interleaved.
//   dir.Write("model.gguf", GgufOf(MakeTinyLlama({.tied = true})).Bytes());
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/gguf_builder.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::test {

// With a byte-level vocabulary: <s>, </s>, the letters of bytes as far as the model's vocabulary
// goes, then "<N>".
GgufBuilder GgufOf(const TinyLlama& model);

// The name in the file of a tensor of the folder.
std::string GgufNameOf(const std::string& name);

// Adds a tensor in its type: F32, F16 or BF16.
void AddStored(const std::string& name, const TinyTensor& tensor, GgufBuilder* file);

// The bytes of random blocks of Q8_0, `elements` values of at most 0.6. *values: what they stand for.
std::string RandomBlocks(int64_t elements, std::mt19937* random, std::vector<float>* values);

// Metadata of the vocabulary alone.
void SetByteVocabulary(int size, GgufBuilder* file);

// The rows of a tensor of the folder in the order of the file. width: elements of a row.
std::vector<float> InterleavedRows(const std::vector<float>& values, int64_t width, int head_dim);

}  // namespace coppice::test
