"""The parts of tools/distill_draft.py: conversations asked of the target (sampling), their files (pieces), what is learned from them
(rows, training), and where the draft starts (start)."""
