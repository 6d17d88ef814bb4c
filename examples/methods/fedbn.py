"""FedBN (Li et al., ICLR 2021): normalisation layers stay with the client. Without such layers it is FedAvg."""

from torch import nn

import firma

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm)


class FedBN(firma.Algorithm):
    def is_private(self, name: str, module: nn.Module) -> bool:
        return isinstance(module, NORMS)
