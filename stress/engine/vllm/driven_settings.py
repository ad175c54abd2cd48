"""The configuration that vLLM's scheduler is built with: what it reads of its VllmConfig, for a server of one rank.

Every release reads other attributes. What is not named here answers None, which the scheduler takes for a feature that
is off; `asked` lists these names. Nothing of the tree's own configuration classes is imported: they ask the machine.
"""

from __future__ import annotations

from typing import Any

asked: dict[str, int] = {}
"""Names that were answered None, and how often."""


class Settings:
    """Attributes by name; None for any other."""

    def __init__(self, **named: Any) -> None:
        vars(self).update(named)

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
        asked[name] = asked.get(name, 0) + 1


class NoGrammar:
    """Stands for the manager of structured output, which no request here has."""

    def should_advance(self, request: Any, *_more: Any, **_named: Any) -> bool:
        return False

    def accept_tokens(self, request: Any, tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, request: Any, tokens: list[int]) -> list[int]:
        return tokens


class TextOnly:
    """Stands for the registry of models with other inputs than text."""

    def supports_multimodal_inputs(self, model_config: Any) -> bool:
        return False


def connector_settings(linker, *, host_pages: int, page_bytes: int) -> Settings:
    """What the connector of the CPU offload is built with, its scheduler side. `linker`: the [linker] table."""
    return Settings(
        kv_connector="SimpleCPUOffloadConnector",
        kv_role="kv_both",
        is_kv_producer=True,
        is_kv_consumer=True,
        is_kv_transfer_instance=True,
        engine_id="kvstress",
        kv_load_failure_policy=linker.on_failed_load,
        kv_connector_extra_config={
            "cpu_bytes_to_use": host_pages * page_bytes * linker.workers,
            "cpu_bytes_to_use_per_rank": host_pages * page_bytes,
        },
    )


def scheduler_settings(
    serving, *, blocks: int, block_size: int, max_tokens: int, connector: Settings | None, workers: int
) -> Settings:
    """`serving`: the [serving] table. `blocks`: of the pool, the null block among them. `max_tokens`: of the longest
    request. `connector`: None: there is none. `workers`: that tell it of copies. Speculative tokens come without a
    draft model that would need slots of its own."""
    drafts = max(0, serving.draft_tokens - 1)  # one slot of a step is the target's own token
    return Settings(
        scheduler_config=Settings(
            max_num_seqs=serving.max_running,
            max_num_batched_tokens=serving.chunk_tokens,
            max_model_len=max_tokens,
            policy=serving.policy,
            watermark=0.0,
            long_prefill_token_threshold=serving.prompt_chunk_tokens,
            enable_chunked_prefill=True,
            prefill_schedule_interval=1,
            scheduler_reserve_full_isl=True,
            async_scheduling=False,
            disable_chunked_mm_input=False,
        ),
        cache_config=Settings(
            num_gpu_blocks=blocks,
            block_size=block_size,
            enable_prefix_caching=True,
            mamba_cache_mode="none",
        ),
        model_config=Settings(max_model_len=max_tokens, runner_type="generate"),
        parallel_config=Settings(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            data_parallel_index=0,
            data_parallel_rank=0,
            world_size=workers,
            tensor_parallel_size=workers,
        ),
        kv_transfer_config=connector,
        observability_config=Settings(per_request_spec_decode_metrics="none"),
        ec_manager_config=Settings(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=Settings(),
        speculative_config=_drafting(drafts) if drafts else None,
        max_in_flight_tokens=serving.chunk_tokens,
        max_concurrent_batches=1,
        num_speculative_tokens=drafts,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
    )


def _drafting(drafts: int) -> Settings:
    """Drafts are found in the text (n-grams): they need no slots ahead of those that a step computes."""
    named = (
        "use_eagle",
        "uses_draft_model",
        "use_multi_module_mtp",
        "use_eagle_block_drop",
        "needs_eagle_block_drop",
    )
    return Settings(
        num_speculative_tokens=drafts, max_num_new_slots_for_drafting=0, **dict.fromkeys(named, lambda: False)
    )
