"""A mistake that mutants.py plants, and the filters of tests that several lists of them name."""
import dataclasses

# What to compile for a header.
UNITS = {"attention_rows.h": ("attention_tiles.cu",), "list_select.h": ("candidate_lists.cu",), "gumbel_noise.h": ("candidate_lists.cu",),
         "level_draws.h": ("choose_level.cu",), "norm_row.h": ("norm.cu",)}


@dataclasses.dataclass
class Mutant:
    name: str
    file: str  # in kernels/cuda
    old: str
    new: str
    tests: str  # the filter of GoogleTest
    thread_sanitizer: bool = False
    units: tuple = ()  # what to compile when the file is a header that UNITS does not have
    program: str = "cuda_kernels_test"  # other ones: for host code, linked as the build links them, no thread sanitizer
    overlap: bool = False  # every launch counts as one that overlaps


ATTENTION = "CudaAttention.*"
TILES = "CudaAttentionTiles.EveryGroup:CudaAttentionTiles.LongChains*:CudaAttentionTiles.MixedRequests"
TILES_SMALL = "CudaAttentionTiles.LongChains*:CudaAttentionTiles.MixedRequests"
