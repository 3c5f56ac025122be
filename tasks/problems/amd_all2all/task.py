from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from reference import MoEConfig, RankTestData

# the configuration, this rank's tokens and experts, rank, world_size
input_t = tuple["MoEConfig", "RankTestData", int, int]
output_t = torch.Tensor
