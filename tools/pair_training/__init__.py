"""The parts of tools/train_pair.py: rows and packs (data, batch), the decoder (model), its training (training, crew, teacher),
and what a draft has of its target (comparing)."""
