#!/usr/bin/env bash
# fuzz.sh SECONDS [FOLDER]
# Builds the fuzzers of HTTP heads, of texts with stop strings, of answers with calls and of request bodies with clang, libFuzzer and the address and
# undefined-behaviour sanitizers, and runs each for so many seconds from its seeds. FOLDER (default: a temporary one) keeps the
# programs, the inputs they find, and the input of a failure. Exit status 1 if one is found.
set -euo pipefail
# shellcheck source=tests/testing/fuzz.sh
. "$(dirname "${BASH_SOURCE[0]}")/../testing/fuzz.sh"

fuzz_flags+=(-include utility)
head_sources=(coordinator/http/request_parser.cc coordinator/http/request_target.cc coordinator/http/cors.cc coordinator/http/gzip.cc
  coordinator/http/api_error.cc coordinator/http/page_reply.cc coordinator/api/endpoints.cc base/nearest_name.cc base/trace_context.cc)
message_sources=(coordinator/message/{call_arguments,call_head,call_ids,message_parser,python_arguments,text_arguments,tool_format}.cc tokenizer/utf8.cc)
stop_sources=(coordinator/request/choice_text.cc coordinator/request/stop_matcher.cc tokenizer/detokenizer.cc
  tokenizer/stop_automaton.cc tokenizer/stop_strings.cc tokenizer/vocabulary.cc base/check.cc "${message_sources[@]}")
body_sources=(coordinator/http/api_error.cc coordinator/http/page_reply.cc coordinator/web/ask_form.cc plan/*.cc sampling/*.cc base/check.cc base/nearest_name.cc base/decoding_stats.cc
  base/host_threads.cc base/output_format.cc tokenizer/detokenizer.cc tokenizer/stop_automaton.cc tokenizer/utf8.cc
  tokenizer/vocabulary.cc)
for name in answer_format api chat_fields client_fields decoding_rules format_fields ignored_fields json_fields json_text known_formats messages_fields \
  messages_input ordered_text parameter_fields prompt_fields renamed responses_fields responses_input sampling_defaults served_models \
  speculative_fields token_endpoints tool_fields translation unserved_fields; do
  body_sources+=("coordinator/api/$name.cc")
done
for source in $(git ls-files 'coordinator/message/*.cc' 'decoding/*.cc' 'grammar/*.cc' 'tokenizer/chat_template/*.cc'); do
  case $source in
    */template_source.cc) ;;  # needs tokenizers; the fuzzer brings its own template
    *) body_sources+=("$source") ;;
  esac
done
packages=(absl_statusor absl_strings absl_str_format absl_raw_hash_set absl_flat_hash_map absl_node_hash_map absl_hash absl_cord libhwy libcrypto libpcre2-8 libutf8proc protobuf
  zlib)
linked=$(pkg-config --libs "${packages[@]}")

fuzz_build head_fuzz "$linked" tests/coordinator/http/head_fuzz.cc "${head_sources[@]}"
fuzz_run head_fuzz 4000 tests/coordinator/http/seeds
fuzz_build stop_fuzz "$linked" tests/coordinator/request/stop_fuzz.cc "${stop_sources[@]}"
fuzz_run stop_fuzz 400 tests/coordinator/request/seeds
fuzz_build message_fuzz "$linked" tests/coordinator/message/message_fuzz.cc "${message_sources[@]}"
fuzz_run message_fuzz 600 tests/coordinator/message/seeds
fuzz_build body_fuzz "$linked" tests/coordinator/api/body_fuzz.cc "${body_sources[@]}"
fuzz_run body_fuzz 4000 tests/coordinator/api/seeds
