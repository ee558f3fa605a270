#!/usr/bin/env bash
# Installs the packages that Coppice needs to build and run and that this machine lacks, from the distribution (Debian 12,
# Ubuntu 24.04). With --tests, also those that only the tests need; with --models, those that models.sh needs; with --package, those
# that package.sh needs. Returns at once if nothing is missing. Called by demo.sh, test.sh, models.sh and package.sh; safe to run again.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config             # build
  openmpi-bin libopenmpi-dev                          # ranks and their collectives
  libzmq3-dev cppzmq-dev                              # control plane
  libsodium-dev                                       # links between nodes with a cluster key
  protobuf-compiler libprotobuf-dev                   # messages
  libabsl-dev libboost-dev nlohmann-json3-dev         # status and strings, HTTP, JSON
  libssl-dev openssl                                  # TLS, keys; certificates of the tests
  zlib1g-dev                                          # HTTP bodies in gzip
  libspdlog-dev libfmt-dev prometheus-cpp-dev         # logs, metrics
  libtomlplusplus-dev                                 # configuration files
  libpcre2-dev libutf8proc-dev                        # tokenizers
  libhwy-dev                                          # kernels
  libgtest-dev libgmock-dev libbenchmark-dev          # tests, micro-benchmarks
  python3 curl ca-certificates openssh-client         # launchers and cluster tests (standard library only)
)

models=(python3-numpy python3-pip)  # to fetch and convert models
package=(dpkg-dev file)             # to find what the programs of a package depend on

# A browser for the tests of the web page. Ubuntu has it as a snap only, so there cluster_web is left out.
browser=()
if grep -qsx 'ID=debian' /etc/os-release; then browser=(chromium chromium-driver); fi

case ${1:-} in
  '') ;;
  --tests) packages+=(clang-format-14 shellcheck iproute2 mandoc nodejs "${browser[@]}" "${models[@]}" "${package[@]}") ;;
  --models) packages+=("${models[@]}") ;;
  --package) packages+=("${package[@]}") ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "setup: unknown argument '$1', expected --tests, --models or --package" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this system has no dpkg and apt-get; install the equivalents of these packages by hand:" >&2
  echo "setup:   ${packages[*]}" >&2
  [ "${1:-}" = --models ] || echo "setup: then deploy/build.sh, and deploy/demo.sh --no-build" >&2
  exit 1
fi

missing=()
installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "${packages[@]}" 2>/dev/null || true)"
for package in "${packages[@]}"; do
  [[ $installed == *" installed:$package "* ]] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

echo "setup: ${#missing[@]} of ${#packages[@]} packages are missing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: neither root nor sudo; ask an administrator to run" >&2
    echo "setup:   apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
echo "setup: reading the package lists"
"${as_root[@]}" apt-get update -q || echo "setup: the package lists could not be refreshed; trying with the old ones" >&2
echo "setup: installing"
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; then
  echo "setup: apt-get could not install the packages (its message is above)" >&2
  exit 1
fi
echo "setup: done"
