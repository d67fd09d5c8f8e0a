"""MP-NUCB in plain PyTorch: autograd for the gradients, torch.optim.Adam for training, one core.

Used for comparison by benchmarks/neural.py; PyTorch is not a dependency of the package. Settings and work are those of
`mp-nucb`: the inverse of the full covariance by rank-one updates, one step on 16 samples for each channel played.
"""

from time import process_time

import torch

K, M, d, D, BATCH, MEMORY = 10, 5, 8, 16, 16, 1000
P = (d + 2) * D


class Channel:
    """Network, optimiser, inverse covariance and samples of one channel."""

    def __init__(self) -> None:
        self.network = torch.nn.Sequential(
            torch.nn.Linear(d + 1, D, bias=False), torch.nn.ReLU(), torch.nn.Linear(D, 1, bias=False)
        )
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=0.005)
        self.A_inv = torch.eye(P)
        self.inputs: list[torch.Tensor] = []
        self.y: list[float] = []
        self.total_h, self.plays = 0.0, 0

    def gradient(self, u: torch.Tensor) -> tuple[float, torch.Tensor]:
        prediction = self.network(u)
        parts = torch.autograd.grad(prediction, list(self.network.parameters()))
        return float(prediction.detach()), torch.cat([part.reshape(-1) for part in parts])

    def learn(self, u: torch.Tensor, g: torch.Tensor, y: float) -> None:
        v = self.A_inv @ g
        self.A_inv -= torch.outer(v, v) / (D + g @ v)
        self.inputs.append(u)
        self.y.append(y)
        del self.inputs[:-MEMORY], self.y[:-MEMORY]
        others = torch.randint(len(self.y), (BATCH - 1,)).tolist()
        places = [len(self.y) - 1, *others]
        predictions = self.network(torch.stack([self.inputs[i] for i in places]))[:, 0]
        loss = torch.nn.functional.mse_loss(predictions, torch.tensor([self.y[i] for i in places]))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def seconds_per_slot(slots: int = 200, warm_up: int = 50) -> float:
    """Return the processor time per slot."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    generator = torch.Generator().manual_seed(0)
    theta = torch.rand(d, generator=generator) / 3
    channels = [Channel() for _ in range(K)]
    began = 0.0
    for t in range(warm_up + slots):
        if t == warm_up:
            began = process_time()
        x = torch.rand(K, d, generator=generator)
        inputs = torch.cat([2 * x - 1, torch.ones(K, 1)], dim=1)
        state = torch.rand(K, generator=generator) < 0.5
        gradients, index = [], []
        for k, channel in enumerate(channels):
            n_hat, g = channel.gradient(inputs[k])
            width = torch.sqrt(g @ channel.A_inv @ g)
            gradients.append(g)
            index.append(channel.total_h / max(channel.plays, 1) - n_hat + float(width))
        for k in torch.tensor(index).topk(M).indices.tolist():
            channels[k].total_h += 1.0 if state[k] else 0.1
            channels[k].plays += 1
            channels[k].learn(inputs[k], gradients[k], float(theta @ x[k]))
    return (process_time() - began) / slots
