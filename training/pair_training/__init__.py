"""The parts of training/train_pair.py: rows and packs (data, batch), the decoder (model), its training (training, crew, teacher),
more rows that a target writes (inventing), means of models (averaging) and what a draft has of its target (comparing)."""
import time


def say(text):
    print(f"train_pair: {time.strftime('%H:%M:%S')} {text}", flush=True)
