"""A batch of packs as tensors."""
import torch


class Batch:
    """Ids, their positions and who sees whom; and of the tokens that are to be predicted: `where` they are predicted, the `next` id,
    the `row`, and whether it is `inside` a completion; `tokens` numbers those inside among all completions."""

    def __init__(self, packs, device, prompt_share):
        """Of the tokens of prompts, a random share is to be predicted."""
        length = max(pack.length for pack in packs)
        ids = torch.zeros(len(packs), length, dtype=torch.long)
        positions = torch.zeros(len(packs), length, dtype=torch.long)
        segments = torch.full((len(packs), length), -1)  # 0: the prefix, which all see; 1, 2, ...: a row, which sees no other
        where, row, inside, tokens, self.rows = [], [], [], [], 0
        for line, pack in enumerate(packs):
            begin = len(pack.prefix)
            all_ids, places, owners = list(pack.prefix), list(range(begin)), [0] * begin
            for number, (prompt, completion, first) in enumerate(pack.rows, 1):
                size = len(prompt) + len(completion)
                at = line * length + len(all_ids)
                all_ids += prompt + completion
                places += range(begin, begin + size)
                owners += [number] * size
                where += range(at, at + size - 1)
                inside += [False] * (len(prompt) - 1) + [True] * len(completion)
                row += [self.rows] * (size - 1)
                tokens += range(first, first + len(completion))
                self.rows += 1
            ids[line, :pack.length] = torch.tensor(all_ids)
            positions[line, :pack.length] = torch.tensor(places)
            segments[line, :pack.length] = torch.tensor(owners)
        where, row, inside = torch.tensor(where), torch.tensor(row), torch.tensor(inside)
        drawn = inside if prompt_share == 0 else inside | (torch.rand(len(inside)) < prompt_share)
        where, row, inside = where[drawn], row[drawn], inside[drawn]
        same = (segments[:, None, :] == 0) | (segments[:, None, :] == segments[:, :, None])
        self.allowed = (same & torch.ones(length, length, dtype=torch.bool).tril()).to(device)
        self.next = ids.view(-1)[where + 1].to(device)
        self.ids, self.positions, self.where = ids.to(device), positions.to(device), where.to(device)
        self.row, self.inside, self.tokens = row.to(device), inside.to(device), torch.tensor(tokens)

    def logits(self, llama):
        """[tokens to be predicted, vocabulary]"""
        states = llama.hidden(self.ids, self.positions, self.allowed)
        return llama.head(states.reshape(-1, states.shape[-1])[self.where])
