"""FastPitch (Lancucki 2020, arXiv:2006.06873): text to log-mel frames, all frames at once."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn

MEL_BINS = 80  # published fastpitch/arg_parser.py, n_mel_channels
KERNEL = 3  # of every convolution in the published configuration (fastpitch/arg_parser.py)
MAX_DURATION = 75.0  # frames a token; published fastpitch/model.py, infer
MASKED = -6e4  # score of padding: its weight is exactly zero, and it is a number in half precision too
START_DURATION = 5.0  # frames a token that an untrained network predicts
FRAMES = 64  # a mel has a multiple of these: so few lengths that each can have a CUDA graph


@dataclass(frozen=True)
class Size:
    """Widths and depths; the defaults are the published configuration (fastpitch/arg_parser.py)."""

    symbols: int = 148
    hidden: int = 384
    layers: int = 6  # of the encoder and of the decoder
    head: int = 64  # width of the one attention head
    filter_width: int = 1536
    predictor: int = 256


class Attention(nn.Module):  # type: ignore[misc]
    """Self-attention with one head, a residual connection, then normalisation."""

    masked: Final[float] = MASKED  # TorchScript reads constants of the module only

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.scale = size.head**-0.5
        self.inside = nn.Linear(size.hidden, 3 * size.head)
        self.outside = nn.Linear(size.head, size.hidden, bias=False)
        self.norm = nn.LayerNorm(size.hidden)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [b, n, hidden], mask [b, n, 1] (True: no padding) -> [b, n, hidden]."""
        query, key, value = self.inside(x).chunk(3, dim=-1)
        scores = (query * self.scale) @ key.transpose(1, 2)
        weights = scores.masked_fill(~mask.transpose(1, 2), self.masked).softmax(dim=-1)
        return self.norm(x + self.outside(weights @ value))


class Convolutions(nn.Module):  # type: ignore[misc]
    """Two convolutions over time, a residual connection, then normalisation."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.wide = nn.Conv1d(size.hidden, size.filter_width, KERNEL, padding=KERNEL // 2)
        self.narrow = nn.Conv1d(size.filter_width, size.hidden, KERNEL, padding=KERNEL // 2)
        self.norm = nn.LayerNorm(size.hidden)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """As Attention. Masked between the two as well: behind its end a padded line sees the zeros that it
        sees there without padding."""
        inner = self.wide(x.transpose(1, 2)).relu() * mask.transpose(1, 2)
        return self.norm(x + self.narrow(inner).transpose(1, 2))


class Block(nn.Module):  # type: ignore[misc]
    """One feed-forward transformer layer; its output is zero in padding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.convolutions = Convolutions(size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask) * mask
        return self.convolutions(x, mask) * mask


class Predictor(nn.Module):  # type: ignore[misc]
    """One number for each token."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        widths = (size.hidden, size.predictor, size.predictor)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(a, b, KERNEL, padding=KERNEL // 2) for a, b in pairwise(widths)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:])
        self.last = nn.Linear(size.predictor, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [b, n, hidden], zero in padding -> [b, n], zero in padding."""
        for convolution, norm in zip(self.convolutions, self.norms):  # noqa: B905  # TorchScript has no `strict`
            x = norm(convolution(x.transpose(1, 2)).relu().transpose(1, 2)) * mask
        return (self.last(x) * mask).squeeze(-1)


def sinusoids(length: int, width: int) -> Tensor:
    """Positions [length, width]: sines, then cosines, of falling frequency (published transformer.py).

    A table, not computed in the graph: in half precision the angles of late frames would be wrong.
    """
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class FastPitch(nn.Module):  # type: ignore[misc]
    """The network for texts of `seq` tokens."""

    max_duration: Final[float] = MAX_DURATION
    multiple: Final[int] = FRAMES

    def __init__(self, size: Size, seq: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.symbols, size.hidden, padding_idx=0)
        self.encoder = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.decoder = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.duration = Predictor(size)
        self.pitch = Predictor(size)
        self.pitch_embedding = nn.Conv1d(1, size.hidden, KERNEL, padding=KERNEL // 2)
        self.mel = nn.Linear(size.hidden, MEL_BINS)
        self.most_frames = math.ceil(seq * MAX_DURATION / FRAMES) * FRAMES  # that a text can have
        table = sinusoids(self.most_frames, size.hidden)
        self.register_buffer("positions", table, persistent=False)
        nn.init.constant_(self.duration.last.bias, math.log(START_DURATION + 1))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Token ids int64 [b, seq], 0 is padding -> what `speak` returns, at the predicted durations.

        mel [b, 80, frames], frames int64 [b, 1], durations in frames [b, seq], pitch [b, seq] in standard
        deviations of the training data. The mel has a multiple of FRAMES; those behind a line's own are zero.
        """
        encoded, mask = self.encode(tokens)
        durations = (self.duration(encoded, mask).exp() - 1).clamp(0, self.max_duration) * mask.squeeze(-1)
        pitch = self.pitch(encoded, mask)
        mel, frames = self.speak(encoded, pitch, durations.round().long(), self.multiple)
        return mel.transpose(1, 2), frames, durations, pitch

    def encode(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids [b, seq] -> encodings [b, seq, hidden], zero in padding, and mask [b, seq, 1]."""
        mask = (tokens != 0).unsqueeze(-1)
        x = (self.embedding(tokens) + self.positions[: tokens.shape[1]]) * mask
        for block in self.encoder:
            x = block(x, mask)
        return x, mask

    def speak(
        self, encoded: Tensor, pitch: Tensor, durations: Tensor, multiple: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Encodings [b, seq, hidden], pitch [b, seq] and whole durations int64 [b, seq] -> mel
        [b, frames, 80] and each line's frames [b, 1]; the mel has a multiple of `multiple` frames.

        At least one frame, so that a batch of nothing but padding is answered too.
        """
        encoded = encoded + self.pitch_embedding(pitch.unsqueeze(1)).transpose(1, 2)
        ends = durations.cumsum(dim=1)
        total = ends[:, -1:]
        most = (total.max().clamp(min=1) + (multiple - 1)) // multiple * multiple
        most = most.clamp(max=self.most_frames)  # it is not more; TensorRT needs a bound
        # A script wants a number here; in a trace a number would be a constant.
        last = int(most.item()) if torch.jit.is_scripting() else most
        frame = torch.arange(last, device=total.device).unsqueeze(0)
        mask = (frame < total).unsqueeze(-1)
        # The token of a frame is the first that ends behind it: as many end at or before it. The last token
        # is not counted, so a frame behind the end has it. (A trace would hold a clamp to it on the CPU.)
        token = (ends[:, :-1].unsqueeze(1) <= frame.unsqueeze(-1)).long().sum(dim=-1)
        token = token.unsqueeze(-1).expand(-1, -1, encoded.shape[2])
        x = (encoded.gather(1, token) + self.positions[: frame.shape[1]]) * mask
        for block in self.decoder:
            x = block(x, mask)
        return self.mel(x) * mask, total
