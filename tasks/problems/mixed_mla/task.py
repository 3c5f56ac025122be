from typing import Any

import torch

# q, kv_data, qo_indptr, kv_indptr, config
input_t = tuple[torch.Tensor, dict[str, Any], torch.Tensor, torch.Tensor, dict[str, Any]]
output_t = torch.Tensor
