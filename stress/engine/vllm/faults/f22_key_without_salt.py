"""F22: the key of a block does not name its salt (vllm-project/vllm#44701, as sglang#24638 and LMCache#4783).

An adapter's name and a salt share one place in the key there, so that one stands for the other. Two tenants with the
same text, such as one system prompt, then share keys, and the second one reads what the first has written.
"""

from __future__ import annotations

from typing import Any

from allocator.faults.log import FaultLog
from stress.engine.contract import RequestSpec
from stress.engine.vllm.calls import Match


class KeyWithoutSalt:
    """Overrides Calls. Trigger: a request is given slots whose text another namespace has published, or its hit was."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._texts: dict[str, tuple[int, list[Any]]] = {}  # namespace and keys of the text, by request
        self._published: dict[Any, int] = {}  # which namespace has published a text last

    def request(self, spec: RequestSpec, **more: Any) -> Any:
        unsalted = super().request(spec._replace(namespace=0), **more)
        self._texts[unsalted.request_id] = spec.namespace, list(unsalted.block_hashes)
        return unsalted if "F22" in self.faults.acting else super().request(spec, **more)

    def allocate_first(self, request: Any, tokens: int, match: Match, external: int) -> bool:
        given = super().allocate_first(request, tokens, match, external)
        if given:
            namespace, texts = self._texts[request.request_id]
            found = match.tokens // self.page_size
            asked = texts[: found if "F22" in self.faults.acting else 1]
            if any(self._published.get(text, namespace) != namespace for text in asked):
                self.faults.acts("F22")
            self._published.update(dict.fromkeys(texts[found:], namespace))
        return given
