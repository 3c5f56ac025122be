from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from reference import Config, KVCache

# config, x, kv_cache
input_t = tuple["Config", torch.Tensor, "KVCache"]
# the layer's output, and kv_cache.data with the new entries
output_t = tuple[torch.Tensor, torch.Tensor]
