"""A small text classifier as one would write it: two transformer layers and a head, one batch.

    kernel-compass optimize --script examples/text_classifier.py --budget 1% --table compass.json
    kernel-compass run --with compass.json examples/text_classifier.py

It runs on the GPU where there is one, else on the CPU.
"""

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, HEADS, LAYERS, WORDS, CLASSES = 256, 4, 2, 1000, 10


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.before_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x))))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = Classifier().eval().to(DEVICE)
    words = torch.randint(0, WORDS, (4, 64), device=DEVICE)
    for _ in range(5):
        scores = model(words)
    print(scores.argmax(-1).tolist())


if __name__ == "__main__":
    main()
