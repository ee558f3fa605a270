"""The kinds of drafts that can be trained, chosen by --kind or by the config.json of a folder."""
from draft_distillation import block_drafter, eagle_head
from draft_distillation.block_drafter import BlockDrafter
from draft_distillation.decoder import Decoder
from draft_distillation.eagle_head import EagleHead
from draft_distillation.llama import config_of
from draft_distillation.pieces import DataError
from draft_distillation.state_layers import dflash_layers, eagle3_layers

OF_ARCHITECTURE = {eagle_head.ARCHITECTURE: "eagle3", block_drafter.ARCHITECTURE: "dflash"}


def kind_of(folder):
    """Of a folder that a training has written."""
    return OF_ARCHITECTURE.get((config_of(folder).get("architectures") or [None])[0], "layers")


def first_layers(kind, count):
    """The layers of a target with so many that a draft begins with."""
    if kind == "eagle3":
        return [count - 1]
    return [0, 1, count - 2, count - 1] if count > 3 else list(range(count))


def new_draft(args, config, layers):
    """The draft that a training begins with, before --start."""
    count = config["num_hidden_layers"]
    if args.kind == "layers":
        return Decoder(config, args.target, layers, args.device)
    given = args.state_layers
    if given and given != sorted(set(given)):
        raise DataError(f"--state-layers: expected ascending layers, got {','.join(map(str, given))}")
    if args.markov_rank < 0:
        raise DataError(f"--markov-rank: expected 0 or more, got {args.markov_rank}")
    if args.kind == "dflash":
        if args.head_ids:
            raise DataError("--head-ids: a block drafter has the head of its target")
        return BlockDrafter(config, args.target, layers, given or dflash_layers(count), args.device, args.draft_steps, args.markov_rank, args.blocks)
    if len(layers) != 1:
        raise DataError(f"--layers: an EAGLE-3 head has one layer, got {len(layers)}")
    return EagleHead(config, args.target, layers[0], given or eagle3_layers(count), args.device, args.draft_steps)


def like(folder, target, device="cpu", draft_steps=4):
    """A draft of the kind and the sizes of a folder of `write`, or of its `trained`, which can take what the folder has."""
    config, of_target, kind = config_of(folder), config_of(target), kind_of(folder)
    if kind == "layers":
        return Decoder(of_target, target, range(config["num_hidden_layers"]), device)
    count = of_target["num_hidden_layers"]
    if kind == "dflash":
        states = config.get("dflash_config", {}).get("target_layer_ids") or dflash_layers(count)
        return BlockDrafter(of_target, target, [0] * config["num_hidden_layers"], states, device, config["block_size"] - 1, config.get("markov_rank", 0))
    return EagleHead(of_target, target, count - 1, eagle_head.state_layers_in(config, count), device, draft_steps)


def read_draft(folder, target, args):
    """(a trained draft, a function of rows.Places that gives the states of its target, if it takes them)"""
    if kind_of(folder) == "layers":
        config = config_of(folder)
        return Decoder(config, folder, range(config["num_hidden_layers"]), args.device), lambda places: None
    if target is None:
        raise DataError(f"{folder}: takes hidden states of its target, which --target must name")
    draft = like(folder, target, args.device, args.draft_steps)
    draft.take(folder)
    config = config_of(target)
    whole = Decoder(config, target, range(config["num_hidden_layers"]), args.device).freeze(args.dtype)
    return draft, lambda places: whole.with_states(places.ids, draft.state_layers)[1]
