#!/usr/bin/env bash
# cluster_key.sh FILE|-
# Makes a new cluster key and writes it to FILE, which must not exist: 256 random bits that only you can read. Give the same file to
# every process of a cluster with --cluster_key_file (docs/operating.md, "Security between nodes"). cluster.sh up does this itself.
# -: writes it to standard output instead, for a program that keeps it, such as kubectl; not to a terminal.
set -euo pipefail

case ${1:-} in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
if [ $# -ne 1 ] || [ -z "$1" ]; then
  echo "cluster_key: expected one file name (see --help)" >&2
  exit 2
fi
if [ "$1" = - ]; then
  if [ -t 1 ]; then
    echo "cluster_key: a key is not shown on a terminal; give a file, or pipe it to the program that keeps it" >&2
    exit 2
  fi
elif [ -e "$1" ] || [ -L "$1" ]; then
  echo "cluster_key: $1 exists already; a key is not overwritten" >&2
  exit 1
fi
secret=$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n')
if [ ${#secret} -ne 64 ]; then
  echo "cluster_key: /dev/urandom gave no 32 bytes" >&2
  exit 1
fi
line="coppice-cluster-key-1 $secret"
if [ "$1" = - ]; then
  echo "$line"
else
  umask 077
  set -o noclobber  # whoever creates the file in the meantime does not get the key
  echo "$line" >"$1"
fi
