#!/usr/bin/env bash
# docker/build.sh cpu|cuda [TAG] [--dry-run]: builds the image coppice:cpu or coppice:cuda (or TAG) with docker. The CPU image is of Debian
# 12, the CUDA image of NVIDIA's CUDA 13 for Ubuntu 24.04, with cuBLAS and NCCL. --dry-run prints the line.
set -euo pipefail
case ${1:-} in
  cpu) images=(debian:12 debian:12-slim) preset=release ;;
  cuda) images=(nvidia/cuda:13.0.0-devel-ubuntu24.04 nvidia/cuda:13.0.0-runtime-ubuntu24.04) preset=cuda ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "docker/build.sh: expected cpu or cuda, got '${1:-}'" >&2; exit 2 ;;
esac
tag=coppice:$1 dry=0
shift
for word in "$@"; do
  case $word in
    --dry-run) dry=1 ;;
    -*) echo "docker/build.sh: unknown option '$word'" >&2; exit 2 ;;
    *) tag=$word ;;
  esac
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
line=(docker build --file "$root/deploy/docker/Dockerfile" --build-arg "BUILD_IMAGE=${images[0]}" --build-arg "RUN_IMAGE=${images[1]}"
  --build-arg "PRESET=$preset" --tag "$tag" "$root")
if [ $dry = 1 ]; then
  printf '%q ' "${line[@]}" | sed 's/ $//'
  echo
else
  exec "${line[@]}"
fi
