import torch

# abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes: a tuple per problem in each list
input_t = tuple[
    list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
    list[tuple[torch.Tensor, torch.Tensor]],
    list[tuple[torch.Tensor, torch.Tensor]],
    list[tuple[int, int, int, int]],
]
output_t = list[torch.Tensor]
