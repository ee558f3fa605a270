"""A deeper model that begins as the one given: each new layer adds nothing until it is trained."""
from draft_distillation import llama
from partial_folder import PartialFolder

from pair_training import model, tokenizer
from pair_training.data import DataError
from pair_training.shape import shape_of


def grow(args):
    """Writes a model folder in bf16 with a new layer after each of the layers named. The last matrix of its attention and of its
    feed-forward part is zero, so what the model says does not change; the others are random."""
    shape = shape_of(args.start)
    if missing := [layer for layer in args.after if layer >= shape["layers"]]:
        raise DataError(f"{args.start}: has no layer {missing[0]}, only 0 to {shape['layers'] - 1}")
    old = model.load(args.start, "cpu").parameters
    grown = model.Llama(dict(shape, layers=shape["layers"] + len(args.after)), "cpu")
    grown.initialise(args.seed)
    new = grown.parameters
    for name, value in new.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            value.data.zero_()
    for layer in range(shape["layers"]):
        place = layer + sum(after < layer for after in args.after)
        for name, part in llama.layer_names(layer).items():
            new[f"model.layers.{place}.{part}"].data.copy_(old[name].data)
    for name in old.keys() - {name for layer in range(shape["layers"]) for name in llama.layer_names(layer)}:
        new[name].data.copy_(old[name].data)
    with PartialFolder(args.out) as folder:
        grown.save(folder.path, tokenizer.file_in(args.start), "bf16")
        folder.finish()
