"""A deeper model that begins as the one given: each new layer adds nothing until it is trained."""
import os

from pair_training import model, tokenizer
from pair_training.data import DataError
from pair_training.shape import shape_of


def grow(args):
    """Writes a model folder with a new layer after each of the layers named. The last matrix of its attention and of its feed-forward
    part is zero, so what the model says does not change; the others are random."""
    shape = shape_of(args.start)
    if missing := [layer for layer in args.after if layer >= shape["layers"]]:
        raise DataError(f"{args.start}: has no layer {missing[0]}, only 0 to {shape['layers'] - 1}")
    source = model.load(args.start, "cpu").parameters
    grown = model.Llama(dict(shape, layers=shape["layers"] + len(args.after)), "cpu")
    grown.initialise(args.seed)
    places, place = {}, 0  # of the source's layers
    for layer in range(shape["layers"]):
        places[layer] = place
        place += 1 + args.after.count(layer)
    for name, value in grown.parameters.items():
        if name.startswith("model.layers.") and name.endswith(("o_proj.weight", "down_proj.weight")):
            value.data.zero_()
    for name, value in source.items():
        if name.startswith("model.layers."):
            layer, _, part = name.removeprefix("model.layers.").partition(".")
            name = f"model.layers.{places[int(layer)]}.{part}"
        grown.parameters[name].data.copy_(value.data)
    os.makedirs(args.out, exist_ok=True)
    grown.save(args.out, tokenizer.file_in(args.start), "bf16")
