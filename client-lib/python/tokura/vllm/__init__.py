"""vLLM's connector to Tokura: share prefix caches between vLLM workers.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "TokuraConnector",
    "kv_connector_module_path": "tokura.vllm",
      "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
      "kv_connector_extra_config": {"coordinators": ["127.0.0.1:7420"]}}'

Options of ``kv_connector_extra_config`` are documented in :mod:`tokura.vllm.options`.
"""

from tokura.vllm.connector import TokuraConnector

__all__ = ["TokuraConnector"]
