"""The mean of models that were trained from one another, which is often better than each of them."""
from partial_folder import PartialFolder

from pair_training import model, tokenizer
from pair_training.data import DataError
from pair_training.shape import shape_of


def mean(args):
    """Writes a model folder with the mean of the parameters of several; one that is named twice counts twice."""
    first, *others = args.trained
    for folder in others:
        if shape_of(folder) != shape_of(first):
            raise DataError(f"{folder}: its shape {shape_of(folder)} is not that of {first}, {shape_of(first)}")
    total = model.load(first, "cpu")
    for folder in others:
        for name, value in model.load(folder, "cpu").parameters.items():
            total.parameters[name].data.add_(value.data)
    for value in total.parameters.values():
        value.data.div_(len(args.trained))
    with PartialFolder(args.out) as folder:
        total.save(folder.path, tokenizer.file_in(first), args.save_dtype)
        folder.finish()
