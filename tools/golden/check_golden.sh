#!/bin/sh
# check_golden.sh COPPICE_GOLDEN DIRECTORY: runs every golden file of the directory.
# Exit 77 (skipped) when it is not there.
golden=$1
directory=$2
if [ ! -d "$directory" ]; then
  echo "SKIPPED: no golden files in $directory"
  exit 77
fi
exec "$golden" "$directory"/*.json
