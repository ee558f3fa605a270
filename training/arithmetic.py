"""What the training tools compute with: matrix products in bfloat16 or in float32, and the optimizer Muon in either."""
import math

import torch

MOMENTUM = 0.95
STEPS = 4  # of Newton and Schulz
COEFFICIENTS = (3.4445, -4.775, 2.0315)


def autocast(device, dtype):
    """Matrix products in bfloat16, if that is the dtype."""
    return torch.autocast(device.split(":")[0], torch.bfloat16, enabled=dtype == "bf16")


def orthogonal(matrix, dtype):
    """Nearly the orthogonal matrix closest to it: five powers of its singular values, a few times (Newton and Schulz)."""
    a, b, c = COEFFICIENTS
    x = matrix.to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    if turned := x.shape[0] > x.shape[1]:
        x = x.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if turned else x


class Muon(torch.optim.Optimizer):
    """Muon (Jordan and others, 2024) with Nesterov's momentum, and steps as large as AdamW's. The same as torch.optim.Muon, which always
    computes in bfloat16."""

    def __init__(self, matrices, lr, weight_decay, dtype):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is None:
                    continue
                momentum = self.state[value].setdefault("momentum_buffer", torch.zeros_like(value))
                momentum.lerp_(value.grad, 1 - MOMENTUM)
                update = orthogonal(value.grad.lerp(momentum, MOMENTUM), self.dtype)
                value.mul_(1 - group["lr"] * group["weight_decay"])
                value.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(value.shape)))
