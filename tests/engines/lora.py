"""Makes LoRA adapters for a model: of the right shapes, with small numbers."""

import json
import pathlib


def make_adapters(model: pathlib.Path, out: pathlib.Path) -> list[pathlib.Path]:
    """Two adapters of the query projections; return their directories."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((model / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim") or hidden // heads
    paths = []
    for number in (1, 2):
        path = out / f"adapter{number}"
        path.mkdir(parents=True, exist_ok=True)
        generator = torch.Generator().manual_seed(number)
        weights = {}
        for layer in range(config["num_hidden_layers"]):
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
            weights[f"{name}.lora_A.weight"] = torch.randn(8, hidden, generator=generator) * 0.02
            weights[f"{name}.lora_B.weight"] = torch.randn(heads * width, 8, generator=generator) * 0.02
        save_file(weights, path / "adapter_model.safetensors")
        adapter = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
        adapter["task_type"] = "CAUSAL_LM"
        (path / "adapter_config.json").write_text(json.dumps(adapter))
        paths.append(path)
    return paths
