"""The parts of training/distill_draft.py: conversations asked of the target (sampling), their files (pieces), what is learned from them
(rows, training), how questions begin (openings), the draft itself (decoder), its tensors in files (tensors)."""
