# Sourced by the fuzz.sh of each folder with its arguments, SECONDS [FOLDER]. Goes to the root of the tree. Sets `seconds`, and `folder`,
# where programs, found inputs and inputs of failures go: FOLDER, or a temporary one that is removed at the end.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ $# -lt 1 ] || ! [[ $1 =~ ^[0-9]+$ ]]; then
  echo "fuzz: expected a number of seconds" >&2
  exit 2
fi
command -v clang++ >/dev/null || { echo "fuzz: clang++ is missing" >&2; exit 1; }
seconds=$1 folder=${2:-}
if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder"

fuzz_flags=(-std=c++20 -O1 -g -w -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I.)

# fuzz_build NAME LIBRARIES SOURCE...: the program $folder/NAME. Compiles two sources at a time, with ccache where it is installed.
fuzz_build() {
  local name=$1 source libraries compiler=(clang++) objects=$folder/objects-$1
  read -ra libraries <<<"$2"
  shift 2
  echo "fuzz: building $name"
  if command -v ccache >/dev/null; then compiler=(ccache clang++); fi
  rm -rf "$objects"
  mkdir -p "$objects"
  for source in "$@"; do printf '%s\0-o\0%s\0' "$source" "$objects/${source//\//_}.o"; done |
    xargs -0 -n 3 -P 2 "${compiler[@]}" "${fuzz_flags[@]}" -c
  clang++ "${fuzz_flags[@]}" "$objects"/*.o "${libraries[@]}" -pthread -o "$folder/$name"
}

# fuzz_run NAME MAX_BYTES SEED_FOLDER...: runs the program $folder/NAME.
fuzz_run() {
  local name=$1 most=$2
  shift 2
  mkdir -p "$folder/corpus-$name"
  "$folder/$name" -max_total_time="$seconds" -max_len="$most" -timeout=10 -artifact_prefix="$folder/" "$folder/corpus-$name" "$@"
}
