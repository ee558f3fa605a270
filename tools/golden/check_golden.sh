#!/bin/sh
# check_golden.sh COPPICE_GOLDEN DIRECTORY: runs every golden file of the algorithms that are built.
# Exit 77 (skipped) when the directory is not there.
golden=$1
directory=$2
if [ ! -d "$directory" ]; then
  echo "SKIPPED: no golden files in $directory"
  exit 77
fi
set --
for name in rng hashlm warp beam_sampling beam_law_two_layers spec_decode rrs_iid rrs_wor kseq \
    greedy_spechub lot tree_block_lengths block_verify dsbd_layer dsbd_survivors dsbd_width \
    wor_reuse_layer gumbel_slots \
    seeded_rejection pf_gumbel hg_wor hg_wor_spec spec_beam_search eos_decode eos_certificate \
    final_selection alpha_star alpha_star_large mjsd_mjgd bild; do
  set -- "$@" "$directory/$name.json"
done
exec "$golden" "$@"
